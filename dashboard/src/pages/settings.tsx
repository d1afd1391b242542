import { Empty, PageHead } from "../ui/basic";

export function SettingsPage() {
  return (
    <>
      <PageHead title="Settings" />
      <Empty title="This page is being built." />
    </>
  );
}
