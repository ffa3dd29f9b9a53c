// Requests to the service, its event streams, and its two kinds of failure. No document in here.

// The service refused a request: the status, the field that is wrong, and after how many seconds to retry, if it says so.
export class Problem extends Error {
  constructor(answer, plain) {
    super(plain.detail || plain.title || `The service answered ${answer.status}.`);
    this.status = answer.status;
    this.field = plain.field ?? null;
    this.retry = Number(answer.headers.get("Retry-After")) || 0;
  }
}

// The service did not answer, or not completely.
export class Unavailable extends Error {}

const STARTING = [502, 503]; // from a proxy while the service starts or stops

let token = remembered("token");

export function useToken(text) {
  token = text;
  remember("token", text);
}

// Values stored for this tab, if the browser allows it.
export function remembered(name) {
  try { return sessionStorage.getItem(`heedful-${name}`) ?? ""; } catch { return ""; }
}

export function remember(name, value) {
  try { sessionStorage.setItem(`heedful-${name}`, value); } catch { /* the browser stores nothing */ }
}

async function send(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const form = body instanceof FormData; // the browser writes its header
  if (body && !form) headers["Content-Type"] = "application/json";
  let answer;
  try {
    const content = form ? body : body && JSON.stringify(body);
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: content, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unavailable("The service does not answer.");
  }
  if (STARTING.includes(answer.status)) throw new Unavailable("The service is not ready.");
  if (!answer.ok) throw new Problem(answer, await answer.json().catch(() => ({})));
  return answer;
}

export async function request(path, body, signal) {
  const answer = await send(path, body, signal);
  try {
    return await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Unavailable("The service stopped in the middle of its response.");
  }
}

// The events of a stream, as [name, data]; it ends with "done" or throws.
export async function* streamEvents(path, body, signal) {
  const answer = await send(path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      text = (text + value).replaceAll("\r\n", "\n");
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const [name, data] of blocks.map(parseBlock)) {
        if (name === "error") throw new Problem(new Response(null, { status: data.status || 500 }), data);
        if (name) yield [name, data];
        if (name === "done") return;
      }
    }
  } catch (error) {
    if (signal?.aborted || error instanceof Problem) throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
  throw new Unavailable("The service stopped in the middle of its response.");
}

// One block of a stream; a comment, sent to keep the connection open, has no name.
function parseBlock(block) {
  const fields = { event: "", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name in fields) fields[name] += value;
  }
  return [fields.event, fields.data ? JSON.parse(fields.data) : null];
}
