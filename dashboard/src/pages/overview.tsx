import { Empty, PageHead } from "../ui/basic";

export function OverviewPage() {
  return (
    <>
      <PageHead title="Overview" />
      <Empty title="This page is being built." />
    </>
  );
}
