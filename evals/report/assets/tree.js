"use strict";
// Draws one search graph (node-link data) as a tree from left to right: a step per box, depth across, leaves down.
const Tree = (() => {
  const GRID = new Grid({ width: 158, height: 38, across: 26, down: 9, pad: 14 });
  const MOST_NODES = 3000;

  // Nodes with their children, in the graph's own order (branch path, then index), and the roots among them.
  function linked(graph) {
    const nodes = new Map(graph.nodes.map((node) => [node.id, { ...node, children: [], parent: null }]));
    for (const link of graph.links) {
      const child = nodes.get(link.target), parent = nodes.get(link.source);
      child.parent = parent;
      parent.children.push(child);
    }
    return { nodes, roots: [...nodes.values()].filter((node) => !node.parent) };
  }

  // The last step of each branch; what was truncated is no part of it.
  function lastSteps(nodes) {
    const last = new Map();
    for (const node of nodes.values()) if (node.reason !== "truncated") last.set(node.branch, node);
    return last;
  }

  // The ids on the path of the returned candidate: the one with its answer and, if several have it, its text.
  function chosenPath(record, last) {
    const paths = record.candidates
      .filter((candidate) => candidate.answer === record.answer && last.has(candidate.id))
      .map((candidate) => pathOf(last.get(candidate.id)));
    const text = (path) => path.slice(1).map((node) => node.text).join("");
    const found = paths.find((path) => text(path) === record.text) || paths[0] || [];
    return new Set(found.map((node) => node.id));
  }

  function scoreOf(node) {
    const key = Object.keys(node).find((name) => name.startsWith("score_") && node[name] !== null);
    return key === undefined ? null : node[key];
  }

  function subtitle(node, candidate) {
    const parts = [`${node.length} tok`];
    const score = candidate && candidate.score !== null ? candidate.score : scoreOf(node);
    if (score !== null) parts.push(`score ${score.toFixed(2)}`);
    if (node.reason && node.reason !== "search ended") parts.push(node.reason);
    else if (candidate && !candidate.complete) parts.push("incomplete");
    return short(parts.join(" · "), 27);
  }

  // Draws into `host`; `pick` is called with a node that was chosen. Returns the number of nodes drawn.
  function draw(host, record, { onlyChosen = false, withEmpty = false, pick }) {
    const { nodes, roots } = linked(record.graph);
    const last = lastSteps(nodes);
    const chosen = chosenPath(record, last);
    const candidates = new Map(record.candidates.map((candidate) => [candidate.id, candidate]));
    const all = [...nodes.values()];
    const capped = new Set(all.slice(0, MOST_NODES).map((node) => node.id));
    for (const id of chosen) capped.add(id);
    const shown = (node) => (!onlyChosen || !chosen.size || chosen.has(node.id)) &&
      (withEmpty || !isEmpty(node) || !node.parent) && capped.has(node.id);
    const places = placed(roots, shown, chosen);
    const drawn = all.filter((node) => places.has(node.id));
    for (const node of drawn) Object.assign(node, places.get(node.id));

    host.replaceChildren();
    const label = `Search tree of ${drawn.length} steps; arrow keys move between them`;
    const tree = svg("svg", host, { ...GRID.size(places), role: "group", "aria-label": label });
    const edges = svg("g", tree), boxes = svg("g", tree);
    for (const node of drawn.filter((each) => each.parent)) {
      const path = svg("path", edges, { d: GRID.edge(node.parent, node) });
      if (chosen.has(node.id)) path.setAttribute("class", "chosen");
    }
    drawn.forEach((node, index) => {
      const candidate = last.get(node.branch) === node ? candidates.get(node.branch) : undefined;
      const cut = !node.children.length && !candidate;
      const box = svg("g", boxes, {
        class: "node" + (chosen.has(node.id) ? " chosen" : "") + (cut ? " cut" : ""),
        transform: `translate(${GRID.x(node)},${GRID.y(node)})`,
        tabindex: index ? -1 : 0, role: "button",
      });
      const label = short(node.text, candidate ? 17 : 19) || node.kind;
      const verdict = candidate && (candidate.correct === null ? "unknown" : candidate.correct ? "right" : "wrong");
      box.setAttribute("aria-label", `${label}, ${subtitle(node, candidate)}${verdict ? ", " + verdict : ""}`);
      svg("rect", box, { width: GRID.width, height: GRID.height, rx: 6 });
      svg("text", box, { x: 9, y: 16 }, label);
      svg("text", box, { x: 9, y: 31, class: "sub" }, subtitle(node, candidate));
      if (verdict) svg("circle", box, { class: `flag ${verdict}`, cx: GRID.width - 13, cy: 13, r: 5 });
      node.box = box;
      const choose = () => {
        for (const other of boxes.querySelectorAll(".picked")) other.classList.remove("picked");
        box.classList.add("picked");
        pick(node, candidate);
      };
      box.addEventListener("click", choose);
      box.addEventListener("keydown", (event) => move(event, node, drawn, choose));
    });
    const first = drawn.find((node) => !node.parent);
    host.scrollTop = Math.max(0, GRID.y(first) + GRID.height / 2 - host.clientHeight / 2);
    return drawn.length;
  }

  // A branch that was forked and never wrote a token.
  function isEmpty(node) {
    return node.length === 0 && !node.children.length;
  }

  function move(event, node, drawn, choose) {
    const level = drawn.filter((other) => other.depth === node.depth).sort((a, b) => a.row - b.row);
    const near = level.indexOf(node);
    const target = {
      ArrowLeft: node.parent, ArrowUp: level[near - 1], ArrowDown: level[near + 1],
      ArrowRight: node.children.find((child) => child.box),
    }[event.key];
    if (event.key === "Enter" || event.key === " ") choose();
    else if (!target || !target.box) return;
    else {
      node.box.setAttribute("tabindex", -1);
      target.box.setAttribute("tabindex", 0);
      target.box.focus();
    }
    event.preventDefault();
  }

  const countEmpty = (graph) => [...linked(graph).nodes.values()].filter((node) => node.parent && isEmpty(node)).length;
  return { draw, countEmpty, MOST_NODES };
})();
