import { Empty, PageHead } from "../ui/basic";

export function SchedulesPage() {
  return (
    <>
      <PageHead title="Schedules" />
      <Empty title="This page is being built." />
    </>
  );
}
