import { Empty, PageHead } from "../ui/basic";

export function TypesPage() {
  return (
    <>
      <PageHead title="Types" />
      <Empty title="This page is being built." />
    </>
  );
}
