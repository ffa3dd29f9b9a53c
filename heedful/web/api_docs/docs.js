"use strict";

// The same entry as the page uses, so that a token is typed once per tab.
const KEY = "heedful-token";

function remembered() {
  try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; }
}

function remember(token) {
  try { sessionStorage.setItem(KEY, token); } catch { /* the browser stores nothing */ }
}

const at = (id) => document.getElementById(id);

async function load(token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("openapi.json", { headers }).catch(() => null);
  at("pass").hidden = answer?.status !== 401;
  at("problem").textContent = "";
  if (answer?.status === 401) {
    if (token) at("problem").textContent = "This token was not accepted.";
    at("token").focus();
    return;
  }
  if (!answer?.ok) {
    at("problem").textContent = `The service does not answer${answer ? ` (${answer.status})` : ""}; reload to try again.`;
    return;
  }
  const ui = SwaggerUIBundle({
    spec: await answer.json(),
    domNode: at("swagger"),
    deepLinking: true,
    validatorUrl: null,
    onComplete: () => { if (token) ui.preauthorizeApiKey("bearer", token); },
  });
}

at("pass").addEventListener("submit", (event) => {
  event.preventDefault();
  remember(at("token").value);
  load(at("token").value);
});

load(remembered());
