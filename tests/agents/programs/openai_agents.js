// An agent on OpenAI's Agents SDK, streamed.
import { execSync } from "node:child_process";
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

// Traces are sent to OpenAI, with the key.
setTracingDisabled(true);
const runShell = tool({
  name: "run_shell",
  description: "Runs a command",
  parameters: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command, { encoding: "utf8" }),
});
const agent = new Agent({ name: "Secretary", instructions: "Use the shell.", tools: [runShell], model: "forte" });
const result = await run(agent, process.argv[2], { stream: true });
for await (const event of result) void event;
console.log(result.finalOutput);
