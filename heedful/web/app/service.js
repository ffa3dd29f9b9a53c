// Talking to the service: what it answers, what it streams, and its two ways to fail. No document in here.

// The service refused, and says why: its status, the field to blame, and after how many seconds it wants to be asked
// again, where it does.
export class Problem extends Error {
  constructor(answer, plain) {
    super(plain.detail || plain.title || `The service answered ${answer.status}.`);
    this.status = answer.status;
    this.field = plain.field ?? null;
    this.retry = Number(answer.headers.get("Retry-After")) || 0;
  }
}

// The service did not answer, or stopped in the middle of it.
export class Gone extends Error {}

const AWAY = [502, 503]; // what stands in for a service that is starting or stopping

let token = remembered("token");

export function useToken(text) {
  token = text;
  remember("token", text);
}

// What this tab keeps; a browser that keeps nothing is no trouble.
export function remembered(name) {
  try { return sessionStorage.getItem(`heedful-${name}`) ?? ""; } catch { return ""; }
}

export function remember(name, value) {
  try { sessionStorage.setItem(`heedful-${name}`, value); } catch { /* it is kept in the page, at least */ }
}

async function send(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Gone("The service does not answer.");
  }
  if (AWAY.includes(answer.status)) throw new Gone("The service is not ready.");
  if (!answer.ok) throw new Problem(answer, await answer.json().catch(() => ({})));
  return answer;
}

export async function ask(path, body, signal) {
  const answer = await send(path, body, signal);
  try {
    return await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Gone("The service stopped in the middle of its answer.");
  }
}

// The events of a stream, as [name, data]; it ends with "done" or throws.
export async function* events(path, body, signal) {
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
      for (const [name, data] of blocks.map(parsed)) {
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
  throw new Gone("The service stopped in the middle of its answer.");
}

// One block of a stream; what is only a comment, sent to keep the line open, has no name.
function parsed(block) {
  const fields = { event: "", data: "" };
  for (const line of block.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name in fields) fields[name] += value;
  }
  return [fields.event, fields.data ? JSON.parse(fields.data) : null];
}
