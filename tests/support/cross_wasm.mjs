// Runs compiled programs of WebAssembly: as cross.c, whose files these are. What a program may not touch is followed by
// bytes that must stay as they are.
import { readFileSync, writeFileSync } from "node:fs";

const LINE = 64, GUARD = 0xa5, PAGE = 65536;
const [image, runs, results] = process.argv.slice(2);
const { exports } = (await WebAssembly.instantiate(readFileSync(image))).instance;
const begin = Math.ceil(exports.__heap_base.value / LINE) * LINE;
const input = readFileSync(runs);
const output = [];
let place = 0;
let next = begin;

function number() {
  place += 8;
  return Number(input.readBigInt64LE(place - 8));
}

function guarded(bytes, aligned) {
  const needed = aligned ? Math.ceil(bytes / LINE) * LINE : bytes;
  const whole = Math.ceil(needed / LINE) * LINE;
  const end = next + whole + 2 * LINE;
  const lacking = end - exports.memory.buffer.byteLength;
  if (lacking > 0) exports.memory.grow(Math.ceil(lacking / PAGE));
  new Uint8Array(exports.memory.buffer, next, end - next).fill(GUARD);
  const at = next + LINE + whole - needed;
  next = end;
  return at;
}

function check(at, bytes) {
  const behind = Math.ceil((at + bytes) / LINE) * LINE;
  const around = [...new Uint8Array(exports.memory.buffer, at - 8, 8), ...new Uint8Array(exports.memory.buffer, behind, LINE)];
  if (around.some((byte) => byte !== GUARD)) throw new Error("a program has written beside its memory");
}

for (let left = number(); left > 0; left--) {
  next = begin;
  const program = number(), arenaBytes = number(), slots = [];
  for (let i = number(); i > 0; i--) {
    const bytes = number(), at = guarded(bytes, number());
    new Uint8Array(exports.memory.buffer, at, bytes).set(input.subarray(place, place + bytes));
    place += bytes;
    slots.push([at, bytes]);
  }
  const arena = guarded(arenaBytes, 1), table = guarded(4 * slots.length, 1);
  new Uint32Array(exports.memory.buffer, table, slots.length).set(slots.map(([at]) => at));
  const status = exports[`main.of${program}`](table, arena, 0);
  output.push(Buffer.from(new BigInt64Array([BigInt(status)]).buffer));
  for (const [at, bytes] of [...slots, [arena, arenaBytes]]) check(at, bytes);
  for (const [at, bytes] of slots) output.push(Buffer.from(exports.memory.buffer.slice(at, at + bytes)));
}
writeFileSync(results, Buffer.concat(output));
