// The model view: every head of every layer as a small picture; one can be enlarged.

// Most lines of a small picture.
const SMALL_LINES = 700;

class ModelView {
  name = "Model";
  explains =
    "Every small picture is one head, drawn as in the head view: layers from top to bottom, heads from " +
    "left to right. Look for patterns, then open one.";

  controls() {
    this.status = make("p", { class: "status", "aria-live": "polite" });
    return [this.status];
  }

  open(stage) {
    this.cells = [];
    const grid = make("div", { class: "grid", role: "group", "aria-label": "heads of all layers" });
    grid.style.setProperty("--heads", heads);
    grid.append(make("span", { class: "corner" }, "layer \\ head"));
    for (let head = 0; head < heads; head++) grid.append(make("span", {}, String(head)));
    for (let layer = 0; layer < layers; layer++) {
      grid.append(make("span", {}, String(data.layers[layer])));
      for (let head = 0; head < heads; head++) grid.append(this.cell(layer, head));
    }
    grid.addEventListener("keydown", (event) =>
      roveByKey(event, this.cells, this.steps(event)));
    this.waiting = new Set();
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.waiting.add(target);
        else this.waiting.delete(target);
      }
      this.paint();
    });
    this.detail = new Detail();
    stage.replaceChildren(grid, this.detail.root);
    this.resized = new ResizeObserver(() => this.render());
    this.resized.observe(grid);
  }

  // Returns the cell that an arrow key leads to; not beyond the edges of the grid.
  steps(event) {
    const at = this.cells.indexOf(event.target);
    const steps = { ArrowUp: -heads, ArrowDown: heads };
    if (at % heads > 0) steps.ArrowLeft = -1;
    if (at % heads < heads - 1) steps.ArrowRight = 1;
    if (at < heads) delete steps.ArrowUp;
    if (at >= heads * (layers - 1)) delete steps.ArrowDown;
    return steps;
  }

  cell(layer, head) {
    const describe = () => this.describe(layer, head);
    const cell = make("button", {
      type: "button",
      class: "cell",
      tabindex: this.cells.length ? -1 : 0,
      "aria-label": `layer ${data.layers[layer]}, head ${head}`,
      onmouseenter: describe,
      onfocus: () => {
        rove(this.cells, this.cells.indexOf(cell));
        describe();
      },
      onclick: () => this.detail.open(layer, head, cell),
    }, make("canvas", { "aria-hidden": "true" }));
    this.cells.push(cell);
    return cell;
  }

  describe(layer, head) {
    this.status.textContent = `Layer ${data.layers[layer]}, head ${head}: ${habit(layer, head)}.`;
  }

  render() {
    this.status.textContent ||= "Point at a picture to read what its head does most.";
    // Redraws the visible ones; the others are drawn when they become visible.
    this.observer.disconnect();
    this.waiting.clear();
    for (const cell of this.cells) this.observer.observe(cell);
    this.detail.render();
  }

  // Draws the visible ones during a part of each frame, so that the page stays responsive.
  paint() {
    if (this.painting || !this.waiting.size) return;
    this.painting = requestAnimationFrame(() => {
      this.painting = null;
      const until = performance.now() + 12;
      for (const cell of this.waiting) {
        this.waiting.delete(cell);
        this.observer.unobserve(cell);
        this.draw(cell);
        if (performance.now() > until) break;
      }
      this.paint();
    });
  }

  draw(cell) {
    const at = this.cells.indexOf(cell);
    const [layer, head] = [Math.floor(at / heads), at % heads];
    const canvas = cell.firstChild;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    const context = sheet(canvas, width, height);
    const { from, to } = sides(state.filter);
    const rows = Math.max(from.length, to.length);
    const placed = (list) => list.map((index, place) => [index, ((place + 0.5) * height) / rows]);
    // Lines are thin if rows are close.
    const pen = Math.min(1, Math.max(0.4, height / rows / 3));
    const thickness = (weight) => pen * (0.7 + 1.3 * weight);
    const map = weights(layer, head);
    const [left, right] = [placed(from), placed(to)];
    const style = { ...manner([map], left, right, SMALL_LINES), width, height, thickness };
    lines(context, map, color(head), left, right, style);
  }

  move(down, right) {
    if (this.detail.root.open) this.detail.move(down, right);
    else this.cells.find((cell) => cell.tabIndex === 0).focus();
  }
}

// An enlarged head above the grid.
class Detail {
  constructor() {
    const button = (text, onclick, label = text) =>
      make("button", { type: "button", "aria-label": label, onclick }, text);
    this.title = make("h2", { id: "detail-title" });
    this.habit = make("p", { class: "note" });
    this.place = make("div");
    const to = (view) => () => {
      state.layer = this.layer;
      state.head = this.head;
      state.shown = new Set([this.head]);
      this.root.close();
      open(view);
      byId(`tab-${view}`).focus();
    };
    this.root = make("dialog", { "aria-labelledby": "detail-title", onclose: () => this.back?.focus() },
      make("div", { class: "bar" }, this.title,
        button("‹", () => this.move(0, -1), "previous head"),
        button("›", () => this.move(0, 1), "next head"),
        button("Head view", to("head")), button("Neuron view", to("neuron")),
        button("Close", () => this.root.close())),
      this.habit, this.place);
    this.root.addEventListener("click", (event) => {
      if (event.target === this.root) this.root.close();
    });
  }

  open(layer, head, back) {
    Object.assign(this, { layer, head, back });
    this.columns = new Columns();
    this.place.replaceChildren(this.columns.root);
    this.root.showModal();
    this.render();
  }

  render() {
    if (!this.root.open) return;
    this.title.textContent = `Layer ${data.layers[this.layer]}, head ${this.head}`;
    this.habit.textContent = `${habit(this.layer, this.head)}.`;
    this.columns.show(this.layer, [this.head], state.filter);
  }

  move(down, right) {
    const [layer, head] = [this.layer + down, this.head + right];
    if (layer < 0 || layer >= layers || head < 0 || head >= heads) return;
    Object.assign(this, { layer, head });
    this.render();
  }
}
