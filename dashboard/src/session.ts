/** Who is looking, and what they may do. */

import { signal } from "@preact/signals";
import { api, type Permission, type Session, take } from "./api/client";
import { root } from "./router";

export const session = signal<Session | null>(null);

export async function loadSession(): Promise<void> {
  session.value = await take(api.GET("/api/session"));
}

export function can(permission: Permission): boolean {
  return session.value?.permissions.includes(permission) ?? false;
}

export async function signOut(): Promise<void> {
  await take(api.DELETE("/api/session"));
  location.assign(`${root}/`);
}
