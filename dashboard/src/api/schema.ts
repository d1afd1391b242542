/** The types of the HTTP interface, which `make snapshot` writes for the TypeScript client. */

export type { components, paths } from "../../../clients/typescript/src/schema";
