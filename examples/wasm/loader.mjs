// Loads what wasm-ld has made of an exported object. Comes in: the module's bytes, and the interface that was written
// with the object, as JSON. Goes out: the memory of the state as arrays by their names (state), and each entry with
// arrays for its feeds and results (feeds, results) and a function that runs it (run).

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, bool: Uint8Array, float16: Uint16Array, bfloat16: Uint16Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};
const LINE = 64; // what workspace and state are aligned to, in bytes; more than arrays need
const PAGE = 65536; // in which memory grows

export async function load(bytes, description) {
  const { exports } = (await WebAssembly.instantiate(bytes)).instance;
  const { memory } = exports;
  let end = exports.__heap_base.value; // behind the module's constants and its stack

  function place(byteCount) {
    const at = Math.ceil(end / LINE) * LINE;
    end = at + byteCount;
    const lacking = end - memory.buffer.byteLength;
    if (lacking > 0) memory.grow(Math.ceil(lacking / PAGE));
    return at;
  }

  // Places first and arrays then: an array of the memory before it has grown is empty.
  const sizeOf = ({ dtype, shape }) => shape.reduce((a, b) => a * b, ARRAYS[dtype].BYTES_PER_ELEMENT);
  const placed = (list) => list.map((item) => ({ ...item, at: place(sizeOf(item)) }));
  const state = place(description.state.bytes);
  const workspace = place(Math.max(...description.entries.map((entry) => entry.workspace)));
  const entries = description.entries.map((entry) => {
    const feeds = placed(entry.feeds), results = placed(entry.results);
    return { ...entry, feeds, results, ins: place(4 * feeds.length), outs: place(4 * results.length) };
  });

  const array = ({ dtype, at }, count) => new ARRAYS[dtype](memory.buffer, at, count);
  const arrays = (list) =>
    Object.fromEntries(list.map((item) => [item.name, array(item, sizeOf(item) / ARRAYS[item.dtype].BYTES_PER_ELEMENT)]));
  const addresses = (at, list) => new Uint32Array(memory.buffer, at, list.length).set(list.map((item) => item.at));

  const program = { state: arrays(description.state.arrays.map((item) => ({ ...item, at: state + item.offset }))) };
  if (description.state.bytes) { // as it is at first
    const initial = exports[`${description.name}_initial_state`].value;
    new Uint8Array(memory.buffer).copyWithin(state, initial, initial + description.state.bytes);
  }
  for (const { name, feeds, results, ins, outs, checks } of entries) {
    addresses(ins, feeds);
    addresses(outs, results);
    program[name] = {
      feeds: arrays(feeds),
      results: arrays(results),
      run() {
        const status = exports[name](ins, outs, workspace, state);
        if (status) throw new Error(`${name}: ${checks[status - 1]?.message ?? status}`);
      },
    };
  }
  return program;
}
