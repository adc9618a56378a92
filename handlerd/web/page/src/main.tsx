import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./state.ts";
import "./style.css";

start();
render(<App />, document.getElementById("page")!);
