"use strict";
// The page itself: searches of a server as they run, or saved graphs.

const byId = (id) => document.getElementById(id);
const config = JSON.parse(byId("config").textContent);
const running = new Set();

// "2k" and "1e12" alike; undefined where nothing stands.
function quantity(input) {
  const text = input.value.trim();
  if (!text) return undefined;
  const found = /^(\d*\.?\d+(?:e\d+)?)\s*([kMGTP]?)$/.exec(text);
  input.setCustomValidity(found ? "" : "a number, such as 2000 or 2k");
  if (!found) { input.reportValidity(); throw new Error(`${input.labels[0].textContent.trim()}: not a number`); }
  return Number(found[1]) * 10 ** (3 * " kMGTP".indexOf(found[2] || " "));
}

function headers() {
  const key = byId("key").value.trim();
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

function say(text, failed = false) {
  byId("message").textContent = text;
  byId("message").classList.toggle("failed", failed);
}

// The message of an answer that is not a success; a missing key opens the field for one.
async function failure(answer) {
  if (answer.status === 401) { byId("keyed").hidden = false; byId("key").focus(); }
  try { return (await answer.json()).error.message; } catch { return `the server answered ${answer.status}`; }
}

async function loadModels() {
  const answer = await fetch("v1/models", { headers: headers() });
  if (!answer.ok) throw new Error(await failure(answer));
  const names = (await answer.json()).data.map((model) => model.id);
  config.model = names[0];
  const strategies = names.slice(1).map((name) => name.slice(names[0].length + 1));
  byId("strategies").replaceChildren(...strategies.map((name) => new Option(name, name)));
  byId("model").textContent = names[0];
}

// The data of the server-sent events of a stream.
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

// One search: its pane is drawn as events come.
async function run(pane, problem, strategy, budget, seed, signal) {
  const begun = performance.now();
  const clock = setInterval(() => { pane.seconds = (performance.now() - begun) / 1000; pane.touch(); }, 250);
  pane.seconds = 0;
  pane.state("waiting for its turn");
  try {
    const answer = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), signal,
      body: JSON.stringify({
        model: config.model, messages: [{ role: "user", content: problem }], strategy, budget, seed,
        stream: true, stream_options: { include_usage: true, search_events: true },
      }),
    });
    if (!answer.ok) throw new Error(await failure(answer));
    pane.state("searching");
    let over = false;
    for await (const data of frames(answer.body)) {
      if (data === "[DONE]") { over = true; break; }
      receive(pane, JSON.parse(data));
    }
    if (!over) throw new Error("the stream broke off");
  } catch (error) {
    pane.state(error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
  } finally {
    clearInterval(clock);
    if (pane.tree.ending) pane.seconds = pane.engineSeconds ?? pane.seconds;
    pane.draw();
    pane.root.dataset.done = "true";
  }
}

function receive(pane, chunk) {
  if (chunk.error) throw new Error(chunk.error.message);
  if (chunk.search_event) { pane.tree.apply(chunk.search_event); pane.touch(); }
  if (chunk.usage) pane.engineSeconds = chunk.usage.search.engine[0].seconds;
}

function show(panes) {
  byId("panes").replaceChildren(...panes.map((pane) => pane.root));
  byId("panes").classList.toggle("two", panes.length > 1);
  byId("key-of-colours").hidden = false;
}

async function solve() {
  const limits = Object.fromEntries(["tokens", "seconds", "flops", "kv"].map((name) => [name, quantity(byId(name))]));
  const seed = quantity(byId("seed"));
  // Limits that are not given are left out of the request: JSON has no undefined.
  const budget = { tokens: limits.tokens, seconds: limits.seconds, flops: limits.flops, kv_tokens: limits.kv };
  const strategies = [byId("first"), byId("second")].map((input) => input.value.trim()).filter(Boolean);
  if (!strategies.length) throw new Error("give a strategy");
  const problem = byId("problem").value.trim();
  if (!problem) throw new Error("give a problem");
  if (!config.model) await loadModels();
  const panes = strategies.map((strategy) => new Pane(strategy, limits));
  show(panes);
  say("");
  const stop = new AbortController();
  running.add(stop);
  await Promise.all(panes.map((pane, index) => run(pane, problem, strategies[index], budget, seed, stop.signal)));
  running.delete(stop);
}

function follow() {
  byId("ask").hidden = false;
  byId("keyed").hidden = !config.keyed;
  byId("tokens").value = config.tokens;
  byId("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    byId("solve").disabled = true;
    byId("stop").disabled = false;
    try { await solve(); } catch (error) { say(error.message, true); }
    byId("solve").disabled = false;
    byId("stop").disabled = true;
  });
  byId("stop").addEventListener("click", () => running.forEach((search) => search.abort()));
  byId("problem").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
  });
  byId("key").addEventListener("change", () => loadModels().then(() => say(""), (error) => say(error.message, true)));
  if (!config.keyed) loadModels().catch((error) => say(error.message, true));
}

function view(saved) {
  show(saved.map(({ name, graph }) => {
    const pane = new Pane(name);
    const strategy = graph.graph && graph.graph.ending && graph.graph.ending.strategy;
    if (strategy) pane.part("title").textContent = `${name}: ${strategy.type}`;
    pane.show(SearchTree.ofGraph(graph));
    return pane;
  }));
}

if (config.saved) view(config.saved);
else follow();
