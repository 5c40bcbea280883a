// Calls Legato over gRPC: one answer, a stream with a tool, and how calls end early or are refused.
//
//   npm ci && LEGATO_ADDRESS=unix:/path/to/run/chat.sock LEGATO_API_KEY=sk-legato-... node chat.js
//
// On TCP, LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY name the PEM files of the authority and of this program.
import { readFileSync } from "node:fs";
import { credentials, loadPackageDefinition, Metadata, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import protobuf from "protobufjs";

const env = process.env;
const PROTOS = env.LEGATO_PROTOS ?? "../../protos";
const DEADLINE_MS = 60_000;

const options = { includeDirs: [PROTOS], enums: String, longs: Number, defaults: true, oneofs: true };
const { ChatService } = loadPackageDefinition(loadSync("legato/chat/v1/chat.proto", options)).legato.chat.v1;

function connect() {
  if (env.LEGATO_ADDRESS.startsWith("unix:")) return new ChatService(env.LEGATO_ADDRESS, credentials.createInsecure());
  const [ca, key, certificate] = [env.LEGATO_TLS_CA, env.LEGATO_TLS_KEY, env.LEGATO_TLS_CERT].map((path) => readFileSync(path));
  // The certificate of every edge is issued to this name, whatever its address is.
  const name = { "grpc.ssl_target_name_override": "edge", "grpc.default_authority": "edge" };
  return new ChatService(env.LEGATO_ADDRESS, credentials.createSsl(ca, key, certificate), name);
}

const client = connect();

function authorization(key) {
  const metadata = new Metadata();
  metadata.set("authorization", `Bearer ${key}`);
  return metadata;
}

function complete(chat, key = env.LEGATO_API_KEY, deadlineMs = DEADLINE_MS) {
  const deadline = Date.now() + deadlineMs;
  return new Promise((resolve, reject) => {
    const done = (error, response) => (error ? reject(error) : resolve(response));
    client.complete({ chat }, authorization(key), { deadline }, done);
  });
}

function stream(chat) {
  return client.stream({ chat }, authorization(env.LEGATO_API_KEY), { deadline: Date.now() + DEADLINE_MS });
}

const ask = (text) => ({ model: "mezzo", messages: [{ role: "ROLE_USER", text }] });

async function answer() {
  const { message, usage } = await complete(ask("Say hello."));
  console.log(`answer: ${message.text} (${usage.costNanos} nano-dollars)`);
}

const weather = {
  function: {
    name: "get_weather",
    description: "The present weather of a city",
    parametersJson: JSON.stringify({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
  },
};

async function streamWithTool() {
  const chat = { ...ask("How is the weather in Paris?"), tools: [weather] };
  const calls = [];
  for await (const { deltas } of stream(chat)) {
    for (const { toolCall: piece } of deltas) {
      if (!piece) continue;
      calls[piece.index] ??= { id: piece.id, name: piece.name, arguments: "" };
      calls[piece.index].arguments += piece.arguments;
    }
  }
  chat.messages.push({ role: "ROLE_ASSISTANT", toolCalls: calls });
  for (const call of calls) {
    const { city } = JSON.parse(call.arguments);
    chat.messages.push({ role: "ROLE_TOOL", toolCallId: call.id, text: `Rain in ${city}, 11 °C` });
  }
  let text = "";
  for await (const { deltas } of stream(chat)) text += deltas.map((delta) => delta.text).join("");
  console.log(`tool: ${calls.map((call) => call.name)}: ${text}`);
}

async function cancel() {
  const running = stream(ask("Tell me a long story."));
  try {
    for await (const { deltas } of running) if (deltas.length > 0) running.cancel();
  } catch (error) {
    console.log(`cancel: ${reasonOf(error)}`);
  }
}

async function refused(what, asked) {
  try {
    await asked;
  } catch (error) {
    console.log(`${what}: ${reasonOf(error)}`);
  }
}

// What a google.rpc.Status and a google.rpc.ErrorInfo look like, as far as the reason goes.
const { root: errors } = protobuf.parse(`
  syntax = "proto3";
  message Status { repeated Detail details = 3; }
  message Detail { string type_url = 1; bytes value = 2; }
  message ErrorInfo { string reason = 1; }
`);

// The reason that Legato gives (docs/errors.md); what gRPC itself ends has a code alone.
function reasonOf(error) {
  if (error.code === status.CANCELLED) return "cancelled";
  if (error.code === status.DEADLINE_EXCEEDED) return "too late";
  const [encoded] = error.metadata.get("grpc-status-details-bin");
  const { details } = errors.lookupType("Status").decode(encoded ?? Buffer.alloc(0));
  const info = details.find((detail) => detail.typeUrl.endsWith("/google.rpc.ErrorInfo"));
  return info ? errors.lookupType("ErrorInfo").decode(info.value).reason : status[error.code];
}

await answer();
await streamWithTool();
await cancel();
await refused("deadline", complete(ask("Think for a long time."), env.LEGATO_API_KEY, 500));
await refused("out of credit", complete(ask("Say hello."), env.LEGATO_API_KEY_WITHOUT_CREDIT));
await refused("revoked key", complete(ask("Say hello."), env.LEGATO_REVOKED_API_KEY));
client.close();
