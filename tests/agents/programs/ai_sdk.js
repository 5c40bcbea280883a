// An agent on the AI SDK, streamed, by the provider that the first argument names.
import { execSync } from "node:child_process";
import { anthropic } from "@ai-sdk/anthropic";
import { openai } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const models = { anthropic: anthropic("forte"), openai: openai("forte"), "openai-chat": openai.chat("forte") };
const runShell = tool({
  description: "Runs a command",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command, { encoding: "utf8" }),
});
const failures = [];
const result = streamText({
  model: models[process.argv[2]],
  prompt: process.argv[3],
  tools: { run_shell: runShell },
  stopWhen: stepCountIs(30),
  // Nothing is stored, so items are sent again and not referred to.
  providerOptions: { openai: { store: false } },
  onError: ({ error }) => failures.push(error),
});
let text = "";
for await (const part of result.textStream) text += part;
if (failures.length) {
  console.error(String(failures[0]));
  process.exit(1);
}
console.log(text);
