// Prints the processor time, in microseconds, that a hostile answer takes to become elements: for each pattern at each length, the least of
// some runs. Nothing is drawn here: elements are counted by nobody.

import { register } from "node:module";

const [, , markdown, ...patterns] = process.argv;
const LENGTHS = [20_000, 80_000];
const RUNS = 3;

// The page's parts are not here: this is what markdown.js takes of them.
const parts = `
export const words = {};
export const make = () => ({ childElementCount: 0, append() {}, appendChild: (child) => child, setAttribute() {}, addEventListener() {} });
export const put = (parent) => parent;
export const button = make;
`;
register(`data:text/javascript,${encodeURIComponent(`
export const resolve = (name, context, next) => name.endsWith("elements.js")
  ? { url: "data:text/javascript,${encodeURIComponent(parts)}", shortCircuit: true }
  : next(name, context);
`)}`);
const { addBlocks } = await import(markdown);

function leastCpuTime(text) {
  let least = Infinity;
  for (let run = 0; run < RUNS; run += 1) {
    const before = process.cpuUsage();
    addBlocks(text.split("\n"), { append() {}, appendChild: (child) => child }, []);
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, user + system);
  }
  return least;
}

const costs = patterns.map((pattern) => {
  const [before, repeated, after] = JSON.parse(pattern);
  return LENGTHS.map((length) => leastCpuTime(before + repeated.repeat(length / repeated.length) + after));
});
process.stdout.write(JSON.stringify(costs));
