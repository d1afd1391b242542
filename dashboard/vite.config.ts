import { defineConfig } from "vite";

// The service is found at run time from a <meta> tag, so one build works under any prefix.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/tasklib/http/static",
    emptyOutDir: true,
    target: "es2022",
    // The policy of the page allows no inline code, and the polyfill would be some.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    proxy: { "/api": "http://127.0.0.1:8000" },
  },
});
