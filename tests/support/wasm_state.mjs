// Loads a module with the example's loader and shows what the loader gives: node wasm_state.mjs LOADER FOLDER. After one
// step of training, the names and the first numbers of the state, and the message of a step that is refused.
import { readFileSync } from "node:fs";

const [loader, folder] = process.argv.slice(2);
const { load } = await import(loader);
const read = (name) => readFileSync(`${folder}/${name}`);
const program = await load(read("net.wasm"), JSON.parse(read("net.json")));
const { feeds, run } = program.train_step;
feeds.pixels.set(read("pixels.bin").subarray(0, feeds.pixels.length));
feeds.labels.set(read("labels.bin").subarray(0, feeds.labels.length));
run();
const state = Object.fromEntries(Object.entries(program.state).map(([name, array]) => [name, [...array.subarray(0, 3)]]));
feeds.labels.fill(10);
let refused = "";
try {
  run();
} catch (error) {
  refused = error.message;
}
console.log(JSON.stringify({ state, refused }));
