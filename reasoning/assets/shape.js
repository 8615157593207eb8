"use strict";
// What drawings of a search tree have in common: a step per box from left to right, depth across, leaves down.
// A node has `id`, `parent` and `children`.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, parent, attributes = {}, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function short(text, length) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > length ? line.slice(0, length - 1) + "…" : line;
}

// The nodes from the root to `node`.
function pathOf(node) {
  const path = [];
  for (let at = node; at; at = at.parent) path.unshift(at);
  return path;
}

// {row, depth} by id of every node shown, parents first: a parent stands level with its child on the `chosen` path (a
// set of ids), else amid its children. Iterative, since a chain may be longer than the call stack.
function placed(roots, shown, chosen) {
  const places = new Map();
  const stack = roots.filter(shown).reverse().map((node) => [node, 0, false]);
  let leaf = 0;
  while (stack.length) {
    const [node, depth, closed] = stack.pop();
    const children = node.children.filter(shown);
    if (!closed) places.set(node.id, null); // parents first
    if (closed) {
      const level = children.find((child) => chosen.has(child.id));
      const row = (child) => places.get(child.id).row;
      places.set(node.id, { depth, row: level ? row(level) : (row(children[0]) + row(children[children.length - 1])) / 2 });
    } else if (!children.length) places.set(node.id, { depth, row: leaf++ });
    else {
      stack.push([node, depth, true]);
      for (const child of children.reverse()) stack.push([child, depth + 1, false]);
    }
  }
  return places;
}

// Where boxes of one size stand: {width, height} of a box, `across` and `down` between them, `pad` around them all.
class Grid {
  constructor(box) { Object.assign(this, box); }

  x({ depth }) { return this.pad + depth * (this.width + this.across); }

  y({ row }) { return this.pad + row * (this.height + this.down); }

  // Width and height of the whole.
  size(places) {
    let rows = 0, depth = 0;
    for (const place of places.values()) {
      rows = Math.max(rows, place.row + 1);
      depth = Math.max(depth, place.depth + 1);
    }
    return {
      width: this.pad * 2 + depth * (this.width + this.across) - this.across,
      height: this.pad * 2 + rows * (this.height + this.down) - this.down,
    };
  }

  // The curve from a parent's box to its child's.
  edge(parent, child) {
    const x0 = this.x(parent) + this.width, y0 = this.y(parent) + this.height / 2;
    const x1 = this.x(child), y1 = this.y(child) + this.height / 2, bend = this.across / 2;
    return `M${x0},${y0}C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
  }
}
