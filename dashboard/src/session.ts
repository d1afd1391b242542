/** Who is looking, and what they may do. */

import { effect, signal } from "@preact/signals";
import { api, type Permission, type Session, take } from "./api/client";
import { connection } from "./live";
import { root } from "./router";

export const session = signal<Session | null>(null);

/** Ask who it is, and again when the service is heard, until it is known. */
export function keepSession(): void {
  // What goes wrong here is said by the banner, or by the page that asks for something else.
  const ask = () => void loadSession().catch(() => undefined);
  ask();
  effect(() => {
    if (connection.value === "live" && !session.peek()) ask();
  });
}

export async function loadSession(through = api): Promise<void> {
  session.value = await take(through.GET("/api/session"));
}

export function can(permission: Permission): boolean {
  return session.value?.permissions.includes(permission) ?? false;
}

export async function signOut(): Promise<void> {
  await take(api.DELETE("/api/session"));
  location.assign(`${root}/`);
}
