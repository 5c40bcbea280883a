// One conversation with the service through the official client: `node client.js CASE`, told in JSON on stdout.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });

const messages = [{ role: "user", content: "How is the weather in Paris?" }];
const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

const cases = {
  chat: () => client.chat.completions.create({ model: "mezzo", messages }),

  stream: async () => {
    const stream = await client.chat.completions.create({ model: "mezzo", messages, stream: true });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
  },

  streamHelper: () => client.chat.completions.stream({ model: "mezzo", messages }).finalChatCompletion(),

  tools: () => client.chat.completions.create({ model: "mezzo", messages, tools }),

  streamedTools: () => client.chat.completions.stream({ model: "mezzo", messages, tools }).finalChatCompletion(),

  models: async () => {
    const found = [];
    for await (const model of client.models.list()) found.push(await client.models.retrieve(model.id));
    return found;
  },

  error: () => client.chat.completions.create({ model: "piano", messages }).catch(describe),

  brokenStream: async () => {
    const chunks = [];
    try {
      const stream = await client.chat.completions.create({ model: "mezzo", messages, stream: true });
      for await (const chunk of stream) chunks.push(chunk);
    } catch (error) {
      return { chunks: chunks.length, ...describe(error) };
    }
  },
};

function describe(error) {
  return {
    kind: error.constructor.name,
    status: error.status,
    type: error.type,
    code: error.code,
    param: error.param,
    requestId: error.requestID,
  };
}

console.log(JSON.stringify(await cases[process.argv[2]]()));
