// The common parts of the three views: selection, controls, keys, colours.

const state = {
  view: data.view,
  layer: 0,
  head: 0,
  // The heads that the head view draws.
  shown: new Set(Array.from({ length: heads }, (_, head) => head)),
  filter: "all",
};

const layers = data.layers.length;

// Returns a token's element; its style shows which text it is from and whether it is special.
function tokenText(index) {
  const classes = SPECIAL.test(tokens[index]) ? "text special" : "text";
  return make("bdi", { class: classes }, tokens[index]);
}

const part = (index) => (index < second ? "A" : "B");

function pickLayer(layer) {
  if (layer < 0 || layer >= layers) return;
  state.layer = layer;
  render();
}

function pickHead(head) {
  if (head < 0 || head >= heads) return;
  state.head = head;
  render();
}

function filterControl() {
  const options = FILTERS.map((filter) => [filter, filter === "all" ? "All" : filter]);
  return radios("Looking from → at", options, state.filter, (filter) => {
    state.filter = filter;
    render();
  });
}

// Shows a view in its initial state.
function open(view) {
  state.view = view;
  for (const tab of byId("tabs").children) {
    const chosen = tab.id === `tab-${view}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("explains").textContent = VIEWS[view].explains;
  byId("stage").setAttribute("aria-labelledby", `tab-${view}`);
  byId("stage").className = view;
  byId("controls").replaceChildren(...VIEWS[view].controls());
  if (FILTERS.length > 1) byId("controls").append(filterControl());
  VIEWS[view].open(byId("stage"));
  render();
  fitFrame();
}

function render() {
  VIEWS[state.view].render();
}

const ARROWS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

function keys(event) {
  const move = ARROWS[event.key];
  if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
  // These elements use the arrow keys themselves.
  if (!event.shiftKey && event.target.closest("select, input, [role=tab]")) return;
  event.preventDefault();
  VIEWS[state.view].move(...move);
}

function start() {
  const of = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
  byId("about").textContent =
    (data.model ? `${data.model}: ` : "") +
    `${of(layers, "layer")} of ${of(heads, "head")}, ${of(count, "token")}`;
  const texts = [["A", data.a], ["B", data.b]].filter(([, text]) => text);
  byId("texts").append(...texts.map(([name, text]) =>
    make("p", {}, make("span", { class: `part ${name}` }, name), make("bdi", {}, text))));
  const tabs = Object.entries(VIEWS).map(([name, view]) =>
    make("button", {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      "aria-controls": "stage",
      onclick: () => open(name),
    }, view.name));
  byId("tabs").append(...tabs);
  byId("tabs").addEventListener("keydown", (event) => {
    if (roveByKey(event, tabs, { ArrowLeft: -1, ArrowRight: 1 })) document.activeElement.click();
  });
  document.addEventListener("keydown", keys);
  begin();
  open(state.view);
}
