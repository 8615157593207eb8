"use strict";
document.documentElement.classList.add("js");

const $ = (id) => document.getElementById(id);

// A DOM element; text goes in as text, whatever a model wrote.
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function tabs() {
  const all = [...document.querySelectorAll("[role=tab]")];
  const select = (tab) => {
    for (const other of all) {
      const on = other === tab;
      other.setAttribute("aria-selected", on);
      other.tabIndex = on ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = !on;
    }
  };
  all.forEach((tab, index) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = all[(index + step + all.length) % all.length];
      select(next);
      next.focus();
    });
  });
  if (all.length) select(all[0]);
}

// A mark's own description, beside the pointer.
function tips() {
  const tip = $("tip");
  document.addEventListener("mousemove", (event) => {
    const mark = event.target.closest && event.target.closest(".chart [aria-roledescription][aria-label]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute("aria-label");
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    tip.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16) + "px";
  });
}

const OUTCOME_COLOURS = ["right", "wrong", "none", "cut", "unknown", "failed"].map((name) => `var(--${name})`);
const MOST_LISTED = 400;
const MOST_CANDIDATES = 200;

class Browser {
  constructor(index, bundles) {
    this.index = index;
    this.bundles = bundles;
    this.loaded = new Map();
    $("find").addEventListener("input", () => this.list());
    $("filter").addEventListener("change", () => this.list());
    addEventListener("hashchange", () => this.follow());
    this.list();
    this.follow().then((opened) => opened && $("samples").scrollIntoView({ behavior: "instant" }));
  }

  // Outcomes of one problem: a row for each setting, an entry for each seed.
  grid(problem) {
    const seeds = this.index.seeds.length;
    return this.index.settings.map((_, i) => [...problem.grid.slice(i * seeds, (i + 1) * seeds)]);
  }

  matches(problem) {
    const rows = this.grid(problem).filter((_, i) => !this.index.settings[i].base);
    const codes = rows.flat().filter((code) => code !== ".");
    const right = (row) => row.filter((code) => code === "0").length;
    const kinds = {
      all: () => true,
      differ: () => new Set(rows.map(right)).size > 1,
      wrong: () => codes.some((code) => code !== "0"),
      never: () => !codes.includes("0"),
      cut: () => codes.includes("3"),
      failed: () => codes.includes("5"),
    };
    const text = `${problem.text} ${problem.id}`.toLowerCase();
    return text.includes($("find").value.trim().toLowerCase()) && kinds[$("filter").value]();
  }

  list() {
    const found = this.index.problems.map((problem, place) => [problem, place]).filter(([problem]) => this.matches(problem));
    const shown = found.slice(0, MOST_LISTED);
    const more = found.length > shown.length ? `; the first ${shown.length} are listed` : "";
    $("count").textContent = `${found.length.toLocaleString("en")} of ${this.index.problems.length.toLocaleString("en")} problems${more}`;
    $("problems").replaceChildren(...shown.map(([problem, place]) => el("li", {}, this.entry(problem, place))));
    this.mark();
  }

  entry(problem, place) {
    const strip = this.grid(problem).filter((_, i) => !this.index.settings[i].base).map((row) => {
      const done = row.filter((code) => code !== ".");
      const share = done.filter((code) => code === "0").length / done.length;
      const colour = done.length ? `color-mix(in oklab, var(--right) ${Math.round(100 * share)}%, var(--wrong))` : "";
      return el("i", { style: colour ? `background:${colour}` : null });
    });
    return el("button", { type: "button", class: "problem", "data-place": place, onclick: () => this.go(place) },
      el("span", { class: "title" }, problem.text), el("span", { class: "strip", "aria-hidden": "true" }, ...strip));
  }

  mark() {
    for (const button of document.querySelectorAll(".problem"))
      button.setAttribute("aria-current", Number(button.dataset.place) === this.place);
  }

  // The address holds what is open, so that it can be sent: #sample/PLACE/SETTING/SEED.
  go(place, setting, seed) {
    const to = ["#sample", place, ...(setting === undefined ? [] : [setting, seed])].join("/");
    if (location.hash === to) this.follow();
    else location.hash = to;
  }

  async follow() {
    const [name, place, setting, seed] = location.hash.split("/");
    const named = name === "#sample" && this.index.problems[place] !== undefined;
    if (!named && this.place !== undefined) return false;
    this.place = named ? Number(place) : 0;
    this.mark();
    const records = await this.load(this.place);
    const first = records.find((record) => !this.index.settings[record.setting].base) || records[0];
    const chosen = records.find((record) => record.setting === Number(setting) && record.seed === Number(seed));
    this.show(records, chosen || first);
    return named;
  }

  async load(place) {
    if (!this.loaded.has(place)) {
      const bytes = Uint8Array.from(atob(this.bundles[place].textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      this.loaded.set(place, await new Response(stream).json());
    }
    return this.loaded.get(place);
  }

  show(records, record) {
    const problem = this.index.problems[this.place];
    const level = problem.level === null ? null : ` · level ${problem.level}`;
    $("detail").replaceChildren(
      el("h3", {}, problem.text),
      el("p", { class: "muted" }, "gold answer ", el("code", {}, problem.gold), level),
      this.matrix(records, record), ...this.sample(record));
  }

  matrix(records, current) {
    const seeds = this.index.seeds.filter((seed) => records.some((record) => record.seed === seed));
    const rows = this.index.settings.map((setting, i) => [setting, records.filter((record) => record.setting === i)]);
    return el("div", { class: "scroll" }, el("table", { class: "seeds" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "setting"), ...seeds.map((seed) => el("th", { scope: "col" }, `seed ${seed}`)))),
      el("tbody", {}, ...rows.filter(([, own]) => own.length).map(([setting, own]) => el("tr", {},
        el("th", { scope: "row" }, el("code", {}, this.named(setting))),
        ...seeds.map((seed) => el("td", {}, this.choice(own.find((record) => record.seed === seed), current))))))));
  }

  named(setting) {
    return setting.base ? "base samples" : `${setting.strategy} @ ${setting.budget}`;
  }

  choice(record, current) {
    if (!record) return null;
    const outcome = this.index.outcomes[record.outcome];
    return el("button", {
      type: "button", "aria-pressed": record === current, title: `${outcome}: ${record.answer === null ? "no answer" : record.answer}`,
      onclick: () => this.go(this.place, record.setting, record.seed),
    }, el("i", { class: "dot", style: `background:${OUTCOME_COLOURS[record.outcome]}` }), el("span", {}, record.answer === null ? outcome : record.answer));
  }

  sample(record) {
    const usage = record.usage, engine = usage.engine || {};
    const known = (value) => (value === null || value === undefined ? "not known" : value.toLocaleString("en"));
    const facts = [
      ["outcome", this.index.outcomes[record.outcome]], ["ended", record.reason],
      ["score", record.score === null ? "none" : record.score.toFixed(3)],
      ["verified", { true: "yes", false: "refuted", null: "not checked" }[record.verified]],
      ["tokens", known(usage.tokens)], ["FLOPs", usage.flops === null ? "not known" : usage.flops.toExponential(2)],
      ["discarded tokens", known(usage.discarded_tokens)], ["scored positions", known(usage.scored_tokens)],
      ["seconds", known(engine.seconds)], ["peak KV positions", known(engine.kv_peak_tokens)],
    ];
    const failed = this.index.outcomes[record.outcome] === "failed";
    const about = (failed ? record.notes : [record.why, record.error, ...record.notes]).filter(Boolean).join("; ");
    return [
      el("h4", {}, `${this.named(this.index.settings[record.setting])}, seed ${record.seed}`),
      el("dl", { class: "facts-grid" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value))))),
      failed ? el("p", { class: "failure" }, `It failed: ${record.error || "no reason was recorded"}. It counts as wrong; --resume solves it again.`) : null,
      about ? el("p", { class: "note" }, about) : null,
      ...this.tree(record), ...this.output(record), ...this.candidates(record),
    ].filter(Boolean);
  }

  tree(record) {
    if (!record.graph || !record.graph.nodes.length) return [el("h4", {}, "Search tree"), el("p", { class: "empty" }, "No graph was kept of this sample.")];
    const host = el("div", { class: "tree", id: "tree" });
    const step = el("div", { id: "step", "aria-live": "polite" });
    const only = el("input", { type: "checkbox", onchange: () => draw() });
    const total = record.graph.nodes.length;
    const heading = el("h4", {}, `Search tree: ${total.toLocaleString("en")} steps`);
    const cap = total > Tree.MOST_NODES ? el("p", { class: "cap" }, `The first ${Tree.MOST_NODES.toLocaleString("en")} steps and the returned path are drawn.`) : null;
    const idle = Tree.countEmpty(record.graph);
    const empty = el("input", { type: "checkbox", onchange: () => draw() });
    const draw = () => Tree.draw(host, record, { onlyChosen: only.checked, withEmpty: empty.checked, pick: (node, candidate) => step.replaceChildren(...this.step(node, candidate)) });
    requestAnimationFrame(draw); // once it stands in the page, so that it can scroll to the root
    const mark = (kind, text) => el("span", {}, el("i", { class: kind }), text);
    return [heading, cap, el("p", { class: "key" }, mark("k-chosen", "returned path"), mark("k-right", "right candidate"), mark("k-wrong", "wrong candidate"),
      mark("k-cut", "ended without an answer"), el("label", {}, only, "returned path only"),
      idle ? el("label", {}, empty, `${idle.toLocaleString("en")} that never began`) : null), host, step];
  }

  step(node, candidate) {
    const hidden = new Set(["id", "text", "children", "parent", "row", "depth", "box"]);
    const facts = Object.entries(node).filter(([name, value]) => !hidden.has(name) && value !== null && value !== "");
    if (candidate) facts.push(["answer", candidate.answer === null ? "none" : candidate.answer]);
    const named = (name) => name.replace(/^score_(.*)/, "score ($1)").replaceAll("_", " ");
    const written = (value) => (typeof value === "number" ? value.toLocaleString("en") : String(value));
    return [el("h4", {}, `Step ${node.id}`), el("pre", { class: "output" }, node.text || "(empty)"),
      el("dl", { class: "facts-grid" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, named(name)), el("dd", {}, written(value)))))];
  }

  output(record) {
    return [el("h4", {}, "Returned text"), record.text ? el("pre", { class: "output" }, record.text) : el("p", { class: "empty" }, "None.")];
  }

  candidates(record) {
    const all = record.candidates, shown = all.slice(0, MOST_CANDIDATES);
    if (!all.length) return [];
    const mark = (candidate) => el("td", {}, candidate.correct === null ? "unknown" : candidate.correct ? "right" : "wrong");
    const number = (value, digits) => el("td", { class: "number" }, value === null || value === undefined ? "–" : value.toFixed(digits));
    const heads = ["branch", "answer", "grade", "score", "mean log p", "tokens", "stop"];
    const numeric = new Set(["score", "mean log p", "tokens"]);
    return [
      el("h4", {}, `Candidates: ${all.length.toLocaleString("en")}${all.length > shown.length ? `, the first ${shown.length} shown` : ""}`),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", class: numeric.has(head) ? "number" : null }, head)))),
        el("tbody", {}, ...shown.map((candidate) => el("tr", {},
          el("td", {}, el("code", {}, candidate.id)), el("td", {}, el("code", {}, candidate.answer === null ? "none" : candidate.answer)), mark(candidate),
          number(candidate.score, 3), number(candidate.mean_logprob, 3), number(candidate.tokens, 0), el("td", {}, candidate.stop)))))),
    ];
  }
}

tabs();
tips();
if ($("browser")) new Browser(JSON.parse($("index").textContent), document.querySelectorAll("script.bundle"));
