import { Empty, PageHead } from "../ui/basic";

export function ErrorsPage() {
  return (
    <>
      <PageHead title="Errors" />
      <Empty title="This page is being built." />
    </>
  );
}
