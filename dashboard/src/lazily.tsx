/** A page whose code is fetched when it is first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Loading, PageHead } from "./ui/basic";

export function lazily<P extends object = object>(title: string, load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [Page, setPage] = useState<ComponentType<P> | null>(() => loaded);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      // It may have come for another place between the first drawing and this.
      if (loaded) return setPage(() => loaded);
      load().then(
        (page) => setPage(() => (loaded = page)),
        () => setFailed(true),
      );
    }, []);
    // After a new version was deployed the old files are gone: the page as it is now has the new ones.
    if (Page) return <Page {...props} />;
    return (
      <>
        <PageHead title={title} />
        {failed ? (
          <p class="trouble" role="alert">
            A new version is available. <a href={location.href} target="_self">Load it</a>
          </p>
        ) : (
          <Loading framed />
        )}
      </>
    );
  };
}
