"use strict";
// One search on the page: how it stands, what it spent, its tree, and the text of the step that was opened.

const KINDS = { answer: "on the best path", open: "on other paths", pruned: "on pruned paths", rest: "under way or taken back" };

function amount(value) {
  for (const [size, unit] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= size) return `${(value / (unit === "k" ? 1e3 : size)).toFixed(1)}${unit}`;
  }
  return String(Math.round(value * 10) / 10);
}

function element(name, parent, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

class Pane {
  // `limits` are those of the budget: tokens, flops, seconds, kv; absent ones are not limited.
  constructor(title, limits = {}) {
    this.root = document.getElementById("pane").content.firstElementChild.cloneNode(true);
    this.part = (name) => this.root.querySelector(`.${name}`);
    this.part("title").textContent = title;
    this.root.setAttribute("aria-label", title);
    this.limits = limits;
    this.tree = new SearchTree();
    this.seconds = null;
    this.opened = null;
    this.due = false;
    this.rest = 60; // milliseconds
    this.drawing = new Drawing(this.part("tree"), (node) => this.open(node));
    this.part("fit").addEventListener("click", () => {
      const fitted = this.part("tree").classList.toggle("fitted");
      this.part("fit").setAttribute("aria-pressed", fitted);
    });
    this.part("close").addEventListener("click", () => this.close());
    this.root.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.opened) this.close(); });
  }

  show(tree) {
    this.tree = tree;
    this.drawing.clear();
    this.draw();
  }

  // Draw soon: many events are drawn at once, the more the longer a drawing takes.
  touch() {
    if (this.due) return;
    this.due = true;
    setTimeout(() => {
      this.due = false;
      const begun = performance.now();
      this.draw();
      this.rest = Math.min(2000, Math.max(60, 4 * (performance.now() - begun)));
    }, this.rest);
  }

  state(text, failed = false) {
    this.part("state").textContent = text;
    this.part("state").classList.toggle("failed", failed);
  }

  draw() {
    const tree = this.tree, summary = tree.summary();
    const hidden = tree.nodes.size ? this.drawing.draw(tree, summary) : 0;
    this.part("tree").hidden = this.part("fit").hidden = tree.nodes.size === 0;
    this.part("hidden").textContent = hidden ? `${hidden} more steps are not drawn.` : "";
    this.bars(tree, summary);
    const { low, high } = tree.scale();
    this.part("low").textContent = low.toFixed(low ? 2 : 0);
    this.part("high").textContent = high.toFixed(high === 1 ? 0 : 2);
    if (tree.ending) this.ended(tree.ending);
    if (this.opened) this.tell(this.opened);
    this.part("notes").hidden = tree.notes.length === 0;
    this.part("count").textContent = `${tree.notes.length} notes of the search`;
    const list = this.part("list");
    while (list.children.length < Math.min(tree.notes.length, 200)) element("li", list, tree.notes[list.children.length]);
  }

  ended({ answer, verified, reason }) {
    const proof = verified === true ? ", proved by a check" : verified === false ? ", refuted by a check" : "";
    const end = reason ? ` · ${reason}` : "";
    this.state(answer === null ? `no answer${end}` : `answer ${answer}${proof}${end}`);
  }

  bars(tree, summary) {
    const { kinds, held, alone } = tree.accounts(summary);
    kinds.rest = Math.max(0, tree.spent.tokens - kinds.answer - kinds.open - kinds.pruned);
    const host = this.part("bars");
    host.replaceChildren();
    this.bar(host, "tokens", kinds, this.limits.tokens);
    this.bar(host, "FLOPs", { used: tree.spent.flops }, this.limits.flops);
    if (this.seconds !== null) {
      const { kv, kvPeak } = tree.spent;
      this.bar(host, "seconds", { used: this.seconds }, this.limits.seconds);
      const told = `${amount(kv)} now, ${amount(kvPeak)} at most`;
      this.bar(host, "KV", { used: kv, before: kvPeak - kv }, this.limits.kv, told);
    }
    this.part("kinds").replaceChildren(...Object.entries(kinds).filter(([, value]) => value).map(([kind, value]) => {
      const entry = element("span", null, `${Math.round(value)} ${KINDS[kind]}`);
      entry.prepend(element("i", null, undefined, kind));
      return entry;
    }));
    const saved = alone ? Math.round(100 * (1 - held / alone)) : 0;
    this.part("sharing").textContent = alone
      ? `Shared KV: ${amount(held)} positions for all paths instead of ${amount(alone)} (${saved} % saved).` : "";
  }

  // `parts` by kind add up to what was used. Without a limit only tokens fill their bar: it shows their shares.
  bar(host, name, parts, limit, told) {
    const used = Object.values(parts).reduce((sum, value) => sum + value, 0);
    const row = element("div", host, undefined, "bar");
    element("span", row, name, "name");
    const track = element("span", row, undefined, limit ? "track" : "track unlimited");
    const whole = limit || (name === "tokens" ? used || 1 : Infinity);
    for (const [kind, value] of Object.entries(parts)) {
      element("i", track, undefined, kind).style.width = `${Math.min(100, 100 * value / whole)}%`;
    }
    const figure = told || amount(used);
    element("span", row, limit ? `${figure} of ${amount(limit)}` : figure, "figure");
  }

  open(node) {
    this.opened = node;
    this.part("step").hidden = false;
    this.tell(node);
  }

  close() {
    this.opened = null;
    this.part("step").hidden = true;
    const box = this.drawing.boxes.get(this.drawing.picked);
    if (box) box.group.focus();
  }

  tell(node) {
    const summary = this.tree.summary().get(node.id);
    const what = node.kind === "prompt" ? "Prompt" : `Step ${node.id.split("#")[1]}`;
    this.part("place").textContent = `${what} of branch ${node.branch}`;
    const facts = [`positions ${node.start} to ${node.start + node.tokens}`];
    if (node.stop) facts.push(`ended by ${node.stop}`);
    for (const [name, value] of node.scores) {
      const remark = node.details.has(name) ? ` (${node.details.get(name)})` : "";
      facts.push(`${name} ${value.toFixed(3)}${remark}`);
    }
    if (node.verified !== null) facts.push(node.verified ? "proved" : "refuted");
    if (node.answer !== null) facts.push(`answer ${node.answer}`);
    const reason = this.tree.reasonOf(node);
    if (reason) facts.push(`branch ended: ${reason}`);
    if (summary && summary.paths > 1) facts.push(`KV shared by ${summary.paths} paths`);
    this.part("facts").textContent = facts.join(" · ");
    this.part("text").textContent = node.text;
    this.part("whole").textContent = pathOf(node).map((each) => each.text).join("\n");
  }
}
