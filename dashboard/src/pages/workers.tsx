import { Empty, PageHead } from "../ui/basic";

export function WorkersPage() {
  return (
    <>
      <PageHead title="Workers" />
      <Empty title="This page is being built." />
    </>
  );
}
