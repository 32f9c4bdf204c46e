// Two columns of tokens with a line for every weight between them, and a list of the chosen token's
// largest weights.

// Lines weaker than this share of the strongest would be invisible.
const FAINT = 0.004;
// The lines of a chosen token are few, so weaker ones are drawn too.
const clear = Math.sqrt;
// With more tokens the rows are closer.
const MANY = 40;
// Most lines that are drawn, for speed and legibility.
const MOST_LINES = 5000;
// Length of the list for a chosen token.
const LISTED = 8;

const place = (index) => make("span", { class: "place" }, String(index));
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

// Returns the context of an empty canvas of that size for drawing in CSS pixels.
function sheet(canvas, width, height) {
  // A canvas can have at most some 16,000 pixels a side.
  const fine = Math.min(window.devicePixelRatio || 1, 16000 / Math.max(width, height));
  canvas.width = Math.max(1, Math.round(width * fine));
  canvas.height = Math.max(1, Math.round(height * fine));
  const context = canvas.getContext("2d");
  context.scale(fine, fine);
  return context;
}

// Returns the smallest weight that is drawn, so that there are at most `most` lines, and the opacity of a
// weight. Opacity is linear in the weight; if even the largest weight is small, it is raised.
function manner(maps, from, to, most) {
  const all = new Float32Array(maps.length * from.length * to.length);
  let at = 0;
  for (const map of maps) {
    for (const [token] of from) {
      for (const [other] of to) all[at++] = map[token * count + other];
    }
  }
  all.sort();
  const largest = all.at(-1);
  const scale = 1 / Math.sqrt(largest);
  return {
    least: Math.max(FAINT * largest, all.length > most ? all[all.length - most] : 0),
    opacity: (weight) => weight * scale,
  };
}

const scratch = document.createElement("canvas");

// Draws a head's weights as lines from the left to the right edge, between tokens given with their
// heights. The lines are drawn in black on a separate canvas, which is then coloured: rounding would
// change the colour of many faint strokes above each other.
function lines(context, w, dye, from, to, style) {
  const { width, height, thickness, opacity } = style;
  const own = sheet(scratch, width, height);
  for (const [token, left] of from) {
    for (const [other, right] of to) {
      const weight = w[token * count + other];
      if (weight < style.least) continue;
      own.globalAlpha = opacity(weight);
      own.lineWidth = thickness(weight);
      own.beginPath();
      own.moveTo(0, left);
      own.bezierCurveTo(width * 0.4, left, width * 0.6, right, width, right);
      own.stroke();
    }
  }
  own.globalAlpha = 1;
  own.globalCompositeOperation = "source-in";
  own.fillStyle = dye;
  own.fillRect(0, 0, width, height);
  context.drawImage(scratch, 0, 0, width, height);
}

class Columns {
  constructor() {
    this.pinned = null;
    this.pointed = null;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.lists = {
      from: make("div", { class: "tokens from", role: "group", "aria-label": "tokens that look" }),
      to: make("div", { class: "tokens to", role: "group", "aria-label": "tokens looked at" }),
    };
    this.title = make("h2");
    this.list = make("ol");
    this.note = make("p", { class: "note" });
    this.root = make("div", { class: count > MANY ? "columns many" : "columns" },
      make("div", { class: "lines" },
        make("div", { class: "heading from" }, "looks"),
        make("div", { class: "heading to" }, "at"),
        this.lists.from, this.canvas, this.lists.to),
      make("aside", { "aria-live": "polite" }, this.title, this.list, this.note));
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.pinned) return;
      event.preventDefault();
      event.stopPropagation();
      this.pinned = null;
      this.draw();
    });
    for (const side of ["from", "to"]) {
      this.lists[side].addEventListener("keydown", (event) =>
        roveByKey(event, [...this.lists[side].children], { ArrowUp: -1, ArrowDown: 1 }));
      this.lists[side].addEventListener("mouseleave", () => this.point(null));
    }
    new ResizeObserver(() => this.canvas.clientWidth !== this.width && this.draw()).observe(this.root);
  }

  // Draws these heads of a layer.
  show(layer, drawn, filter) {
    Object.assign(this, { layer, drawn });
    if (filter !== this.filter) {
      this.filter = filter;
      this.sides = sides(filter);
      this.pinned = this.pointed = null;
      for (const side of ["from", "to"]) {
        const buttons = this.sides[side].map((index) => this.token(side, index));
        this.lists[side].replaceChildren(...buttons);
        rove(buttons, 0);
      }
    }
    this.draw();
  }

  token(side, index) {
    const it = { side, index };
    const button = make("button", {
      type: "button",
      class: `token ${part(index)}`,
      "data-index": index,
      title: `${tokens[index]}, token ${index}`,
      onmouseenter: () => this.point(it),
      onfocus: () => {
        rove([...this.lists[side].children], this.sides[side].indexOf(index));
        if (button.matches(":focus-visible")) this.point(it);
      },
      onblur: () => this.point(null),
      onclick: () => {
        const same = this.pinned?.side === side && this.pinned.index === index;
        this.pinned = same ? null : it;
        this.draw();
      },
    }, tokenText(index), make("span", { class: "share" }));
    return button;
  }

  point(it) {
    this.pointed = it;
    if (!this.pinned) this.draw();
  }

  // The token that is shown: the selected one, or the one under the pointer.
  get chosen() {
    return this.pinned ?? this.pointed;
  }

  draw() {
    if (!this.sides || !this.root.isConnected) return;
    const maps = this.drawn.map((head) => weights(this.layer, head));
    const { chosen } = this;
    const row = this.lists.from.firstChild.getBoundingClientRect().height;
    const width = (this.width = this.canvas.clientWidth);
    const rows = Math.max(this.sides.from.length, this.sides.to.length);
    const context = sheet(this.canvas, width, rows * row);
    this.canvas.style.height = `${rows * row}px`;
    const rowsOf = (side) =>
      this.sides[side]
        .map((index, place) => [index, (place + 0.5) * row])
        .filter(([index]) => chosen?.side !== side || chosen.index === index);
    const [from, to] = [rowsOf("from"), rowsOf("to")];
    const style = {
      ...manner(maps, from, to, MOST_LINES),
      ...(chosen && { opacity: clear }),
      width,
      height: rows * row,
      thickness: (weight) => 1 + 2.5 * weight,
    };
    for (const [i, map] of maps.entries()) {
      lines(context, map, color(this.drawn[i]), from, to, style);
    }
    for (const side of ["from", "to"]) {
      for (const button of this.lists[side].children) {
        const index = Number(button.dataset.index);
        const here = chosen?.side === side && chosen.index === index;
        button.classList.toggle("chosen", here);
        button.setAttribute("aria-pressed", here && this.pinned !== null);
        const across = chosen && chosen.side !== side;
        this.shade(button, across ? this.seen(maps, index) : []);
      }
    }
    this.describe(maps);
  }

  // Returns the weight between the chosen token and another one in every head that is drawn.
  seen(maps, index) {
    const { side, index: token } = this.chosen;
    const at = side === "from" ? token * count + index : index * count + token;
    return maps.map((map) => map[at]);
  }

  // Draws a stripe for every head behind a token, as strong as its weight, and writes their mean.
  shade(button, seen) {
    const share = button.querySelector(".share");
    button.style.backgroundImage = "";
    share.textContent = "";
    if (!seen.length) return;
    const stops = seen.map((weight, i) => {
      const strength = Math.round(clear(weight) * 200).toString(16).padStart(2, "0");
      const [start, end] = [i, i + 1].map((n) => `${(100 * n) / seen.length}%`);
      return `${color(this.drawn[i])}${strength} ${start} ${end}`;
    });
    button.style.backgroundImage = `linear-gradient(90deg, ${stops.join(", ")})`;
    if (mean(seen) >= 0.005) share.textContent = Math.round(100 * mean(seen));
  }

  // Lists the largest shares of the chosen token, or of all.
  describe(maps) {
    const { chosen } = this;
    const which = this.drawn.length === 1 ? `Head ${this.drawn[0]}` : `Mean of ${this.drawn.length} heads`;
    const about = `${which}, layer ${data.layers[this.layer]}`;
    this.list.replaceChildren();
    if (!maps.length) {
      this.title.textContent = "No head is switched on";
      this.note.textContent = "Switch one on above.";
    } else if (chosen) {
      const shares = this.sides[chosen.side === "from" ? "to" : "from"].map((index) => {
        return { index, share: mean(this.seen(maps, index)) };
      });
      shares.sort((a, b) => b.share - a.share);
      const looks = chosen.side === "from" ? " looks at" : " is looked at by";
      this.title.replaceChildren(tokenText(chosen.index), looks);
      for (const { index, share } of shares.slice(0, LISTED)) {
        const bar = make("span", { class: "bar" });
        bar.style.width = `${(100 * share) / shares[0].share}%`;
        if (this.drawn.length === 1) bar.style.background = color(this.drawn[0]);
        this.list.append(make("li", { "data-index": index },
          tokenText(index), place(index),
          make("span", { class: "track" }, bar),
          make("data", { value: share.toFixed(6) }, percent(share))));
      }
      // The shares that a token gives add up to 1; those that it receives don't.
      const rest = shares.slice(LISTED).reduce((sum, { share }) => sum + share, 0);
      const unlisted = chosen.side === "from" && shares.length > LISTED;
      const more = unlisted ? `; ${shares.length - LISTED} more tokens: ${percent(rest)}` : "";
      this.note.textContent = `${about}${more}.`;
    } else {
      this.title.textContent = "Strongest links";
      for (const { token, index, share } of this.strongest(maps)) {
        this.list.append(make("li", { class: "link" },
          make("div", {}, tokenText(token), place(token), " → ", tokenText(index), place(index)),
          make("data", { value: share.toFixed(6) }, percent(share))));
      }
      const all = maps.length * this.sides.from.length * this.sides.to.length;
      const left = all > MOST_LINES ? ` The strongest ${MOST_LINES} of ${all} lines are drawn.` : "";
      this.note.textContent =
        `${about}.${left} Point at a token: on the left for what it looks at, on the right for who looks at it. ` +
        "A click keeps it chosen.";
    }
  }

  // Returns the links with the largest mean shares, largest first.
  strongest(maps) {
    const found = [];
    for (const token of this.sides.from) {
      for (const index of this.sides.to) {
        let share = 0;
        for (const map of maps) share += map[token * count + index] / maps.length;
        if (found.length === LISTED && share <= found.at(-1).share) continue;
        const before = found.findIndex((link) => link.share < share);
        found.splice(before < 0 ? found.length : before, 0, { token, index, share });
        found.length = Math.min(found.length, LISTED);
      }
    }
    return found;
  }
}
