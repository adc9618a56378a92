import { defineConfig } from "vite";
import { fakeDaemon } from "./src/dev/fake.ts";

// The built page has no inline script or style and asks no other host: handlerd's content security policy allows neither.
// Names carry a digest of their content, so that they may be cached for good; index.html may not.
export default defineConfig({
  base: "/",
  plugins: [fakeDaemon()],
  resolve: {
    alias: { "react/jsx-runtime": "preact/jsx-runtime", "react-dom": "preact/compat", react: "preact/compat" },
  },
  build: {
    outDir: "../assets",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { host: "127.0.0.1", port: 5199 },
});
