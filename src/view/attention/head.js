// The head view: the heads of a layer drawn above each other; each can be switched on and off.

class HeadView {
  name = "Head";
  explains =
    "Each line joins a token on the left to one that it looks at on the right; the stronger the line, " +
    "the larger that share of its attention. A colour is a head of the layer.";

  controls() {
    this.layer = new Stepper("Layer", data.layers, pickLayer);
    this.chips = Array.from({ length: heads }, (_, head) => {
      const chip = make("button", {
        type: "button",
        class: "chip",
        title: `Head ${head}: click to switch it on or off, double-click for it alone`,
        "aria-label": `head ${head}`,
        onclick: () => this.toggle(head),
        ondblclick: () => this.only(head),
      }, String(head));
      chip.style.setProperty("--head", color(head));
      return chip;
    });
    rove(this.chips, state.head);
    const chips = make("div", { class: "chips", role: "toolbar", "aria-label": "Heads" }, ...this.chips);
    chips.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.only(this.chips.indexOf(event.target));
      }
      roveByKey(event, this.chips, { ArrowLeft: -1, ArrowRight: 1 });
    });
    const every = (on) => () => {
      state.shown = new Set(on ? this.chips.keys() : []);
      render();
    };
    return [
      this.layer.root,
      make("div", { class: "heads" }, make("span", {}, "Heads"), chips,
        make("button", { type: "button", onclick: every(true) }, "All"),
        make("button", { type: "button", onclick: every(false) }, "None")),
    ];
  }

  toggle(head) {
    if (!state.shown.delete(head)) state.shown.add(head);
    state.head = head;
    render();
  }

  only(head) {
    state.shown = new Set([head]);
    state.head = head;
    render();
  }

  open(stage) {
    this.columns = new Columns();
    stage.replaceChildren(this.columns.root);
  }

  render() {
    this.layer.show(state.layer);
    for (const [head, chip] of this.chips.entries()) {
      chip.setAttribute("aria-pressed", state.shown.has(head));
    }
    const drawn = [...state.shown].sort((a, b) => a - b);
    this.columns.show(state.layer, drawn, state.filter);
  }

  // Shows another head alone: the one after the last such head, or the first.
  move(down, right) {
    if (down) pickLayer(state.layer + down);
    if (!right) return;
    const to = state.shown.size === 1 ? [...state.shown][0] + right : right > 0 ? 0 : heads - 1;
    if (to < 0 || to >= heads) return;
    rove(this.chips, to);
    this.only(to);
  }
}
