"use strict";
// Draws a search tree from left to right: a step per box, depth across, leaves down. Boxes live as long as their
// nodes, so that what is focused or opened stays so while the tree grows.

const GRID = new Grid({ width: 176, height: 40, across: 28, down: 9, pad: 14 });
const MOST_NODES = 2000;

class Drawing {
  // `host` scrolls; `pick` is called with the node that was chosen.
  constructor(host, pick) {
    this.host = host;
    this.pick = pick;
    this.boxes = new Map();
    this.svg = svg("svg", host, { role: "group" });
    this.edges = svg("g", this.svg);
    this.layer = svg("g", this.svg);
    this.picked = null;
    this.entry = null; // the box that Tab leads to
  }

  clear() {
    this.boxes.clear();
    this.edges.replaceChildren();
    this.layer.replaceChildren();
    this.picked = this.entry = null;
    this.tree = null;
  }

  // Returns how many nodes were left out.
  draw(tree, summary) {
    this.tree = tree;
    const chosen = tree.chosenPath();
    const shown = new Set([...tree.nodes.keys()].slice(0, MOST_NODES));
    for (const id of chosen) shown.add(id);
    const places = placed(tree.roots, (node) => shown.has(node.id), chosen);
    for (const [id, box] of this.boxes) {
      if (places.has(id)) continue;
      box.group.remove();
      box.edge.remove();
      this.boxes.delete(id);
    }
    const scale = tree.scale();
    for (const [id, place] of places) {
      const node = tree.nodes.get(id);
      const box = this.boxes.get(id) || this.make(node);
      Object.assign(box, place);
      this.update(box, node, summary.get(id), chosen.has(id), scale);
    }
    const size = GRID.size(places), viewBox = `0 0 ${size.width} ${size.height}`;
    for (const [name, value] of Object.entries({ ...size, viewBox })) this.svg.setAttribute(name, value);
    this.svg.setAttribute("aria-label", `Search tree of ${places.size} steps; arrow keys move between them, Enter opens one`);
    if (this.entry === null && places.size) this.enter(tree.roots[0].id);
    return tree.nodes.size - places.size;
  }

  make(node) {
    const group = svg("g", this.layer, { tabindex: -1, role: "button", "data-step": node.id });
    const box = { node, group, edge: svg("path", this.edges) };
    svg("rect", group, { width: GRID.width, height: GRID.height, rx: 6 });
    svg("rect", group, { class: "score", width: 6, height: GRID.height - 12, x: 5, y: 6, rx: 3 });
    box.label = svg("text", group, { x: 18, y: 17 });
    box.sub = svg("text", group, { x: 18, y: 32, class: "sub" });
    group.addEventListener("click", () => this.choose(node));
    group.addEventListener("keydown", (event) => this.key(event, node));
    this.boxes.set(node.id, box);
    return box;
  }

  update(box, node, { paths, pruned }, chosen, scale) {
    const score = this.tree.scoreOf(node), reason = this.tree.reasonOf(node);
    const faded = pruned && !chosen;
    const state = [chosen && "chosen", faded && "pruned", node.writing && "writing", score !== null && "scored"];
    box.group.setAttribute("class", ["node", ...state, this.picked === node.id && "picked"].filter(Boolean).join(" "));
    box.group.setAttribute("transform", `translate(${GRID.x(box)},${GRID.y(box)})`);
    if (score !== null) box.group.style.setProperty("--score", `${100 * (score - scale.low) / (scale.high - scale.low)}%`);
    const mark = node.verified === true ? "✓ " : node.verified === false ? "✗ " : "";
    const label = mark + (short(node.text, 21 - mark.length) || node.kind);
    const told = reason !== "" && faded;
    const said = told ? [] : [node.writing ? "writing" : `${node.tokens} tok`];
    if (score !== null) said.push(score.toFixed(2));
    if (told) said.push(reason);
    else if (paths > 1) said.push(`KV of ${paths} paths`);
    box.label.textContent = label;
    box.sub.textContent = short(said.join(" · "), 29);
    const worth = score === null ? "" : `, score ${score.toFixed(2)}`;
    const shared = paths > 1 ? `, KV shared by ${paths} paths` : "";
    const cut = faded ? `, pruned${reason ? ": " + reason : ""}` : "";
    box.group.setAttribute("aria-label", `${label}, ${node.tokens} tokens${worth}${cut}${shared}`);
    const parent = node.parent && this.boxes.get(node.parent.id);
    if (!parent) { box.edge.removeAttribute("d"); return; }
    box.edge.setAttribute("d", GRID.edge(parent, box));
    box.edge.setAttribute("class", chosen ? "chosen" : faded ? "pruned" : "");
    box.edge.style.strokeWidth = `${Math.min(6, 1 + Math.log2(paths))}px`;
  }

  enter(id) {
    const before = this.boxes.get(this.entry);
    if (before) before.group.setAttribute("tabindex", -1);
    this.entry = id;
    this.boxes.get(id).group.setAttribute("tabindex", 0);
  }

  choose(node) {
    const before = this.boxes.get(this.picked);
    if (before) before.group.classList.remove("picked");
    this.picked = node.id;
    this.boxes.get(node.id).group.classList.add("picked");
    this.enter(node.id);
    this.pick(node);
  }

  key(event, node) {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(node);
      return;
    }
    const target = this.towards(event.key, node);
    if (target === undefined) return;
    event.preventDefault();
    const box = target && this.boxes.get(target.id);
    if (!box) return;
    this.enter(target.id);
    box.group.focus();
  }

  // The node that an arrow key leads to; undefined for other keys.
  towards(key, node) {
    const at = this.boxes.get(node.id);
    const level = () => [...this.boxes.values()].filter((box) => box.depth === at.depth).sort((a, b) => a.row - b.row);
    const beside = (by) => { const row = level(); return (row[row.indexOf(at) + by] || {}).node || null; };
    const children = node.children.filter((child) => this.boxes.has(child.id));
    switch (key) {
      case "ArrowLeft": return node.parent;
      case "ArrowRight": {
        const chosen = this.tree.chosenPath();
        return children.find((child) => chosen.has(child.id)) || children[0] || null;
      }
      case "ArrowUp": return beside(-1);
      case "ArrowDown": return beside(1);
      case "Home": return this.tree.roots[0];
    }
    return undefined;
  }
}
