"use strict";
// A search tree, from the events of a running search or from a saved graph. Knows nothing of the page.

// Ends of a branch that say nothing against it.
const QUIET_ENDS = ["search ended", "solved", "finished"];

class SearchTree {
  constructor() {
    this.nodes = new Map();
    this.branches = new Map();
    this.chosen = null; // the branch that a stop would return now
    this.notes = []; // remarks of the strategy, and calls of tools
    this.spent = { tokens: 0, flops: 0, kv: 0, kvPeak: 0 };
    this.ending = null; // {answer, verified, reason}
  }

  // The tree of a graph as `solve --graph FILE.json` writes it.
  static ofGraph(data) {
    const tree = new SearchTree();
    for (const found of data.nodes) {
      const node = tree.add(found.branch, null, found.id, found.kind);
      Object.assign(node, { text: found.text, tokens: found.length, start: found.start, stop: found.stop });
      for (const [key, value] of Object.entries(found)) {
        if (key.startsWith("score_") && value !== null) node.scores.set(key.slice(6), value);
      }
      node.verified = found.verified;
      if (found.reason === "truncated") node.truncated = true;
      else if (found.reason) tree.branches.get(found.branch).reason = found.reason;
    }
    for (const { source, target } of data.links) {
      const child = tree.nodes.get(target);
      child.parent = tree.nodes.get(source);
      child.parent.children.push(child);
    }
    for (const node of tree.nodes.values()) if (!node.truncated) tree.branches.get(node.branch).tip = node;
    for (const node of [...tree.nodes.values()]) {
      if (node.parent && !node.tokens && !node.children.length) tree.remove(node); // forked, never written on
    }
    const about = data.graph || {};
    const ending = about.ending || {};
    tree.notes = (about.notes || []).map((note) => JSON.stringify(note));
    tree.spent.tokens = ending.tokens ?? data.nodes.reduce((sum, node) => sum + (node.tokens_spent || 0), 0);
    tree.spent.flops = ending.flops ?? data.nodes.reduce((sum, node) => sum + (node.flops_spent || 0), 0);
    const proved = [...tree.nodes.values()].find((node) => node.verified === true);
    tree.chosen = ending.branch ?? (proved ? proved.branch : null);
    tree.ending = { answer: ending.answer ?? null, verified: ending.verified ?? null, reason: ending.reason || "" };
    return tree;
  }

  add(branch, parent, id, kind = "step") {
    if (!this.branches.has(branch)) this.branches.set(branch, { id: branch, tip: parent, reason: "", made: 0, start: 0 });
    const node = {
      id, branch, kind, parent, children: [], text: "", tokens: 0, start: 0, stop: "", scores: new Map(),
      details: new Map(), verified: null, answer: null, writing: false, truncated: false, characters: 0,
    };
    if (parent) parent.children.push(node);
    this.nodes.set(id, node);
    return node;
  }

  remove(node) {
    this.nodes.delete(node.id);
    if (node.parent) node.parent.children.splice(node.parent.children.indexOf(node), 1);
  }

  // One event of a search, see reasoning/events.py.
  apply(event) {
    this.spent.tokens = Math.max(this.spent.tokens, event.tokens_spent);
    this.spent.flops = Math.max(this.spent.flops, event.flops_spent || 0);
    this.spent.kv = event.kv_owned || 0;
    this.spent.kvPeak = Math.max(this.spent.kvPeak, this.spent.kv);
    const branch = this.branches.get(event.branch);
    switch (event.event) {
      case "branchopened": this.open(event); break;
      case "wrote": this.write(branch, event.text); break;
      case "cut": this.cut(branch, event.kept); break;
      case "stepdone": this.step(branch, event); break;
      case "scored": this.score(branch, event); break;
      case "pruned":
        branch.reason = event.reason;
        this.settle(branch);
        break;
      case "offered": if (event.incumbent !== null) this.chosen = event.incumbent; break;
      case "toolcalled": this.notes.push(`${event.branch}: ${event.call} → ${event.result}`); break;
      case "noted": this.notes.push(`${event.text} ${JSON.stringify(event.fields)}`); break;
      case "ended": this.ending = { answer: event.answer, verified: event.verified, reason: event.reason }; break;
    }
  }

  open({ branch, parent, start, text }) {
    const from = parent === null ? null : this.branches.get(parent).tip;
    const opened = { id: branch, tip: from, reason: "", made: 0, start: start || 0 };
    this.branches.set(branch, opened);
    if (parent !== null) return;
    const root = this.add(branch, null, `${branch}#0`, "prompt");
    root.text = text;
    root.tokens = opened.start;
    opened.made = 1;
    opened.tip = root;
  }

  next(branch) {
    const parent = branch.tip;
    const node = this.add(branch.id, parent, `${branch.id}#${branch.made++}`);
    node.start = parent ? parent.start + parent.tokens : branch.start;
    node.characters = parent && parent.kind !== "prompt" ? parent.characters + parent.text.length : 0;
    branch.tip = node;
    return node;
  }

  write(branch, text) {
    const node = branch.tip && branch.tip.writing && branch.tip.branch === branch.id ? branch.tip : this.next(branch);
    node.writing = true;
    node.text += text;
  }

  // Text that was taken back: steps behind it are no part of the branch any more.
  cut(branch, kept) {
    while (branch.tip && branch.tip.branch === branch.id && branch.tip.kind !== "prompt") {
      const node = branch.tip;
      if (node.writing && node.characters < kept) { node.text = node.text.slice(0, kept - node.characters); return; }
      if (node.characters + node.text.length <= kept) return;
      branch.tip = node.parent;
      if (node.writing) this.remove(node);
      else node.truncated = true;
    }
  }

  step(branch, { text, tokens, stop, answer }) {
    let rest = "";
    if (branch.tip && branch.tip.writing && branch.tip.branch === branch.id) {
      // What was written so far may hold several steps: they are told one after the other.
      if (branch.tip.text.startsWith(text)) rest = branch.tip.text.slice(text.length);
      branch.tip.writing = false;
    } else this.next(branch);
    Object.assign(branch.tip, { text, tokens, stop, answer });
    if (rest) this.write(branch, rest);
  }

  // A branch that ends keeps no half-told step.
  settle(branch) {
    const tip = branch.tip;
    if (!tip || !tip.writing || tip.branch !== branch.id) return;
    if (tip.text && !tip.children.length) tip.writing = false;
    else if (!tip.children.length) { branch.tip = tip.parent; this.remove(tip); }
  }

  score(branch, { verifier, value, verified, detail, steps = [] }) {
    const node = branch.tip.writing ? branch.tip.parent : branch.tip; // the last whole step
    const path = pathOf(node).filter(({ kind }) => kind !== "prompt");
    if (steps.length && steps.length === path.length) path.forEach((step, index) => step.scores.set(verifier, steps[index]));
    else if (value !== null) node.scores.set(verifier, value);
    if (verified !== null) node.verified = verified;
    if (detail) node.details.set(verifier, detail);
  }

  get roots() { return [...this.nodes.values()].filter((node) => !node.parent); }

  // The ids on the path of the answer.
  chosenPath() {
    const branch = this.branches.get(this.chosen);
    return new Set(branch && branch.tip ? pathOf(branch.tip).map((node) => node.id) : []);
  }

  reasonOf(node) {
    if (node.truncated) return "truncated";
    const branch = this.branches.get(node.branch);
    return branch.tip === node ? branch.reason : "";
  }

  cutShort(node) {
    const reason = node.truncated ? "truncated" : this.branches.get(node.branch).reason;
    return reason !== "" && !QUIET_ENDS.some((quiet) => reason.startsWith(quiet));
  }

  // For every node, children first: the paths through it, and whether all of them were pruned.
  summary() {
    const order = [];
    const stack = this.roots;
    while (stack.length) { const node = stack.pop(); order.push(node); stack.push(...node.children); }
    const found = new Map();
    for (const node of order.reverse()) {
      const below = node.children.map((child) => found.get(child.id));
      found.set(node.id, below.length
        ? { paths: below.reduce((sum, { paths }) => sum + paths, 0), pruned: below.every(({ pruned }) => pruned) }
        : { paths: 1, pruned: this.cutShort(node) });
    }
    return found;
  }

  // Tokens by what became of them, and positions of all paths with and without sharing.
  accounts(summary) {
    const chosen = this.chosenPath();
    const kinds = { answer: 0, open: 0, pruned: 0 };
    let held = 0, alone = 0;
    for (const node of this.nodes.values()) {
      const { paths, pruned } = summary.get(node.id);
      held += node.tokens;
      alone += node.tokens * paths;
      if (node.kind !== "prompt") kinds[chosen.has(node.id) ? "answer" : pruned ? "pruned" : "open"] += node.tokens;
    }
    return { kinds, held, alone };
  }

  // The score that colours a node: the last that came.
  scoreOf(node) {
    const values = [...node.scores.values()];
    return values.length ? values[values.length - 1] : null;
  }

  // Least and greatest score; from 0 to 1 where all are.
  scale() {
    let low = 0, high = 1;
    for (const node of this.nodes.values()) {
      for (const value of node.scores.values()) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    return { low, high };
  }
}
