// Asks for one answer and one stream with the generated stubs: node chat.js ADDRESS
import { credentials, Metadata } from "@grpc/grpc-js";
import { ChatServiceClient, CompleteRequest, CompleteResponse, Role, StreamRequest } from "./legato/chat/v1/chat.js";

const client = new ChatServiceClient(process.argv[2], credentials.createInsecure());
const metadata = new Metadata();
metadata.set("authorization", "Bearer sk");
const options = { deadline: Date.now() + 60_000 };
const chat = {
  model: "mezzo",
  messages: [{ role: Role.ROLE_USER, content: { $case: "text" as const, value: "Say hello." } }],
  tools: [{ kind: { $case: "function" as const, value: { name: "wave", parametersJson: '{"type":"object"}' } } }],
};

const answer = await new Promise<CompleteResponse>((resolve, reject) =>
  client.complete(CompleteRequest.fromPartial({ chat }), metadata, options, (error, response) =>
    error ? reject(error) : resolve(response),
  ),
);
const cost: bigint | undefined = answer.usage?.costNanos;
console.log(answer.message?.text, cost);

for await (const response of client.stream(StreamRequest.fromPartial({ chat }), metadata, options)) {
  for (const delta of response.deltas) {
    if (delta.kind?.$case === "text") console.log(delta.kind.value);
  }
}
client.close();
