// The neuron view: how a head computes its weights for a token, number by number.

class NeuronView {
  name = "Neuron";
  explains =
    "How a head decides: the query of the chosen token is multiplied, number by number, with the key of " +
    "every token; the products add up to q · k, and a softmax makes shares of attention of these sums.";

  controls() {
    this.layer = new Stepper("Layer", data.layers, pickLayer);
    this.head = new Stepper("Head", [...Array(heads).keys()], pickHead);
    return [this.layer.root, this.head.root];
  }

  open(stage) {
    this.list = make("div", { class: "tokens from", role: "group", "aria-label": "tokens that look" });
    this.list.addEventListener("keydown", (event) =>
      roveByKey(event, [...this.list.children], { ArrowUp: -1, ArrowDown: 1 }));
    this.list.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.pinned = false;
      this.press();
    });
    this.query = this.canvas();
    this.asked = make("span");
    const column = (title, about, name = "") =>
      make("th", { scope: "col", title: about, class: name }, title);
    this.rows = make("tbody");
    this.table = make("table", {},
      make("colgroup", {},
        ...["c-token", "c-key", "c-product", "c-dot", "c-softmax"].map((name) =>
          make("col", { class: name }))),
      make("thead", {},
        make("tr", {},
          make("th", { scope: "row", class: "asked" }, this.asked),
          make("td", { title: "the query vector, q" }, this.query),
          make("td", { colspan: 3, class: "legend" },
            make("i", { class: "above" }), " above zero ", make("i", { class: "below" }), " below")),
        make("tr", {},
          column("looks at", "the tokens that may be looked at"),
          column("key k", "the key vector of each token"),
          column("q × k", "the products of the numbers of q and k"),
          column("q · k", "the sum of the products", "dot"),
          column("softmax", `the share of attention: softmax of q · k / √${size}`))),
      this.rows);
    this.note = make("p", { class: "note" });
    this.pinned = false;
    stage.replaceChildren(make("div", { class: count > MANY ? "neurons many" : "neurons" },
      make("div", {}, make("h2", {}, "token"), this.list),
      make("div", {}, this.table, this.note)));
    this.table.addEventListener("mousemove", (event) => this.describe(event));
    this.table.addEventListener("mouseleave", () => this.legend());
    this.legend();
    this.filter = null;
  }

  canvas() {
    return make("canvas", { class: "strip", "aria-hidden": "true" });
  }

  legend() {
    this.note.textContent =
      `A strip has the ${size} numbers of a vector, the stronger the larger; point at one to read it. The softmax ` +
      `is that of q · k / √${size} over all tokens.`;
  }

  fill() {
    this.filter = state.filter;
    const { from, to } = sides(this.filter);
    if (!from.includes(state.query)) {
      state.query = from.find((index) => !SPECIAL.test(tokens[index])) ?? from[0];
    }
    const buttons = from.map((index) =>
      make("button", {
        type: "button",
        class: `token ${part(index)}`,
        "data-index": index,
        title: `${tokens[index]}, token ${index}`,
        onmouseenter: () => this.pinned || this.ask(index),
        onfocus: (event) => event.target.matches(":focus-visible") && this.ask(index),
        onclick: () => {
          this.pinned = !(this.pinned && state.query === index);
          this.ask(index);
        },
      }, tokenText(index)));
    this.list.replaceChildren(...buttons);
    this.rows.replaceChildren(...to.map((index) =>
      make("tr", { "data-index": index },
        make("th", { scope: "row", class: `token ${part(index)}` }, tokenText(index)),
        make("td", {}, this.canvas()), make("td", {}, this.canvas()),
        make("td", { class: "dot" }, make("data")),
        make("td", { class: "softmax" }, make("div", {}, make("span", { class: "bar" }), make("data"))))));
  }

  ask(index) {
    state.query = index;
    this.render();
  }

  press() {
    const buttons = [...this.list.children];
    for (const button of buttons) {
      const here = Number(button.dataset.index) === state.query;
      button.classList.toggle("chosen", here);
      button.setAttribute("aria-pressed", here && this.pinned);
    }
    rove(buttons, buttons.findIndex((button) => button.classList.contains("chosen")));
  }

  render() {
    if (this.filter !== state.filter) this.fill();
    this.layer.show(state.layer);
    this.head.show(state.head);
    this.press();
    const token = state.query;
    const [queries, keys] = [QUERY, KEY].map((kind) => vectorsOf(state.layer, kind, state.head));
    const query = queries.subarray(token * size, (token + 1) * size);
    const products = keys.map((value, i) => value * query[i % size]);
    const sums = dots(queries, keys, token);
    const shares = sharesOf(sums);
    Object.assign(this, { keys, queryValues: query, products });
    this.asked.replaceChildren("q of ", tokenText(token));
    const most = {
      query: largest(query),
      keys: largest(keys),
      products: largest(products),
      share: Math.max(...sides(state.filter).to.map((index) => shares[index])),
    };
    strip(this.query, query, most.query);
    for (const row of this.rows.children) {
      const index = Number(row.dataset.index);
      const of = (values) => values.subarray(index * size, (index + 1) * size);
      const [key, product] = row.querySelectorAll("canvas");
      strip(key, of(keys), most.keys);
      strip(product, of(products), most.products);
      const [dot, share] = row.querySelectorAll("data");
      dot.value = sums[index].toFixed(6);
      dot.textContent = short(sums[index]);
      share.value = shares[index].toFixed(6);
      share.textContent = percent(shares[index]);
      row.querySelector(".bar").style.width = `${(100 * shares[index]) / most.share}%`;
    }
  }

  // Shows the number under the pointer.
  describe(event) {
    const canvas = event.target.closest("canvas");
    if (!canvas) return;
    const box = canvas.getBoundingClientRect();
    const i = Math.min(size - 1, Math.floor(((event.clientX - box.left) / box.width) * size));
    const row = canvas.closest("tr").dataset.index;
    const q = `q ${short(this.queryValues[i])}`;
    if (row === undefined) {
      this.note.textContent = `Number ${i}: ${q}`;
      return;
    }
    const at = Number(row) * size + i;
    this.note.replaceChildren(`Number ${i}: ${q} × k `, tokenText(Number(row)),
      ` ${short(this.keys[at])} = ${short(this.products[at])}`);
  }

  move(down, right) {
    if (down) pickLayer(state.layer + down);
    if (right) pickHead(state.head + right);
  }
}

const VIEWS = { head: new HeadView(), model: new ModelView(), neuron: new NeuronView() };
start();
