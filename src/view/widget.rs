//! Widgets: controls in a notebook that call a function of a cell, without compiling anything again.
//!
//! ```no_run
//! use cloze::prelude::*;
//! Slider::new("slope", 0.0..=2.0).start(1.0).show(|slope| {
//!     let points: Vec<_> = (0..=10).map(|x| (f64::from(x), slope * f64::from(x))).collect();
//!     LineChart::new("a line").line("y", &points)
//! });
//! ```
//!
//! They speak the protocol of ipywidgets 8 (its documents `messages.md` and `modelstate.md` in
//! packages/schema), so the page needs its JupyterLab extension, `jupyterlab_widgets`; a [`Widget`] needs `anywidget`.
//! Elsewhere a slider shows the picture of its first value.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::comm::{self, Data};
use super::display::{self, Content, Show};
use super::style::number;

const TARGET: &str = "jupyter.widget";
/// The version of the protocol.
const VERSION: &str = "2.1.0";
const BASE: [&str; 2] = ["@jupyter-widgets/base", "2.0.0"];
const CONTROLS: [&str; 2] = ["@jupyter-widgets/controls", "2.0.0"];
/// The format of a display that the page replaces by a widget's view.
const VIEW: &str = "application/vnd.jupyter.widget-view+json";

/// A slider that shows a picture of its value.
///
/// In a notebook the picture follows the slider: the function runs on a thread of its own, also while a cell
/// runs. So it owns what it uses (`move`). A slider needs a range from a smaller to a larger number, and a step above 0.
#[derive(Debug, Clone)]
pub struct Slider {
    label: String,
    range: RangeInclusive<f64>,
    start: f64,
    step: f64,
}

impl Slider {
    /// Creates a slider with 100 steps that begins in the middle of the range.
    pub fn new(label: impl Into<String>, range: RangeInclusive<f64>) -> Self {
        let width = range.end() - range.start();
        let start = range.start() + width / 2.0;
        Self { label: label.into(), start, step: width / 100.0, range }
    }

    /// Sets the first value; one outside the range becomes its nearest end.
    #[must_use]
    pub fn start(mut self, value: f64) -> Self {
        self.start = value.max(*self.range.start()).min(*self.range.end());
        self
    }

    /// Sets the distance between two values. With 1 the slider shows whole numbers.
    #[must_use]
    pub fn step(mut self, step: f64) -> Self {
        self.step = step;
        self
    }

    /// Shows the slider, and below it the picture that `view` returns for its value.
    pub fn show<V: Show>(self, mut view: impl FnMut(f64) -> V + Send + 'static) {
        let (from, to) = (*self.range.start(), *self.range.end());
        let moves = from.is_finite() && to.is_finite() && from < to && self.step > 0.0;
        if !moves {
            display::text(format!(
                "slider `{}`: expected a range from a smaller to a larger number and a step above 0, got \
                 {from} to {to} in steps of {}",
                self.label, self.step
            ));
            return;
        }
        let picture = display::new_id("slider");
        let first = view(self.start).content();
        let id = picture.clone();
        let mut at = self.start;
        let control = model(self.state(), move |slider| {
            // It may have moved back in the meantime.
            if let Some(value) = slider.get("value").and_then(|value| value.as_f64())
                && value != at
            {
                at = value;
                display::update(id.clone(), view(value).content());
            }
        });
        let plain = format!("{} = {}", self.label, number(self.start));
        display::put(view_of(&control).with_text(plain));
        display::put_as(picture, first);
    }

    /// Returns how many decimals the numbers need: those of the step, if that is a short number.
    fn digits(&self) -> usize {
        let is_whole = |value: f64| (value - value.round()).abs() < 1e-9 * value.abs();
        let needed = (0..=4).find(|&digits| is_whole(self.step * 10f64.powi(digits)));
        needed.map_or(4, |digits| digits.unsigned_abs() as usize)
    }

    /// Returns the state that ipywidgets names `FloatSliderModel`.
    fn state(&self) -> Data {
        let layout = model(of(BASE, "LayoutModel", BASE, "LayoutView"), |_| {});
        let mut style = of(CONTROLS, "SliderStyleModel", BASE, "StyleView");
        style.insert("description_width".to_owned(), json!("initial"));
        let style = model(style, |_| {});
        let mut state = of(CONTROLS, "FloatSliderModel", CONTROLS, "FloatSliderView");
        let own = json!({
            "description": self.label,
            "min": self.range.start(),
            "max": self.range.end(),
            "step": self.step,
            "value": self.start,
            "continuous_update": true,
            "orientation": "horizontal",
            "readout": true,
            "readout_format": format!(".{}f", self.digits()),
            "layout": format!("IPY_MODEL_{layout}"),
            "style": format!("IPY_MODEL_{style}"),
        });
        state.extend(own.as_object().cloned().unwrap_or_default());
        state
    }
}

/// A widget whose page side is a JavaScript module of your own, as anywidget loads it.
///
/// The module exports `default { render({ model, el }) }`. Its model has the values of the state, in JSON; binary
/// values are not supported.
///
/// ```no_run
/// use cloze::view::{Widget, json};
/// let module = "export default { render({ model, el }) {
///     el.textContent = `clicked ${model.get('clicks')} times`;
///     el.onclick = () => { model.set('clicks', model.get('clicks') + 1); model.save_changes(); };
/// } }";
/// let counter = Widget::new(module, json!({ "clicks": 0 }));
/// let counter = counter.show(|counter| println!("{:?}", counter.get("clicks")));
/// counter.set("clicks", json!(10));
/// ```
#[derive(Debug, Clone)]
pub struct Widget {
    state: Data,
}

impl Widget {
    /// Creates a widget from the text of its module and its first state, an object.
    pub fn new(module: impl Into<String>, state: Value) -> Self {
        const ANY: [&str; 2] = ["anywidget", "*"];
        let mut all = of(ANY, "AnyModel", ANY, "AnyView");
        all.insert("_esm".to_owned(), Value::String(module.into()));
        all.insert("_anywidget_id".to_owned(), json!("cloze.Widget"));
        all.extend(state.as_object().cloned().unwrap_or_default());
        Self { state: all }
    }

    /// Adds a style sheet.
    #[must_use]
    pub fn css(mut self, css: impl Into<String>) -> Self {
        self.state.insert("_css".to_owned(), Value::String(css.into()));
        self
    }

    /// Shows the widget. `changed` is called when the page has changed its state, on a thread of its own.
    pub fn show(mut self, changed: impl FnMut(&WidgetHandle) + Send + 'static) -> WidgetHandle {
        let layout = model(of(BASE, "LayoutModel", BASE, "LayoutView"), |_| {});
        self.state.insert("layout".to_owned(), json!(format!("IPY_MODEL_{layout}")));
        let shown = WidgetHandle::open(self.state, changed);
        display::put(view_of(&shown.id).with_text("[a widget: it is drawn in the notebook]"));
        shown
    }
}

/// A widget on the page.
#[derive(Debug, Clone)]
pub struct WidgetHandle {
    id: String,
    state: Arc<Mutex<Data>>,
}

impl WidgetHandle {
    fn open(state: Data, mut changed: impl FnMut(&Self) + Send + 'static) -> Self {
        let data = json!({ "state": state, "buffer_paths": [] });
        let handle = Self { id: comm::new_id(), state: Arc::new(Mutex::new(state)) };
        let own = handle.clone();
        let answer = move |data: Data| {
            let method = data.get("method").and_then(Value::as_str);
            match (method, data.get("state").and_then(Value::as_object)) {
                (Some("request_state"), _) => own.send("update", &locked(&own.state)),
                (Some("update"), Some(new)) => {
                    // Other pages with the same notebook follow.
                    own.send("echo_update", new);
                    locked(&own.state).extend(new.clone());
                    changed(&own);
                }
                _ => {}
            }
        };
        comm::open(&handle.id, TARGET, data, json!({ "version": VERSION }), answer);
        handle
    }

    fn send(&self, method: &str, state: &Data) {
        comm::send(&self.id, json!({ "method": method, "state": state, "buffer_paths": [] }));
    }

    /// Changes a value of the state, also on the page.
    pub fn set(&self, name: &str, value: Value) {
        let mut changed = Data::new();
        changed.insert(name.to_owned(), value);
        self.send("update", &changed);
        locked(&self.state).extend(changed);
    }

    /// Returns a value of the state.
    pub fn get(&self, name: &str) -> Option<Value> {
        locked(&self.state).get(name).cloned()
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a model on the page and returns its id.
fn model(state: Data, changed: impl FnMut(&WidgetHandle) + Send + 'static) -> String {
    WidgetHandle::open(state, changed).id
}

/// Returns the part of a state that names the page's classes.
fn of([module, version]: [&str; 2], model: &str, view_in: [&str; 2], view: &str) -> Data {
    let all = [
        ("_model_module", module),
        ("_model_module_version", version),
        ("_model_name", model),
        ("_view_module", view_in[0]),
        ("_view_module_version", view_in[1]),
        ("_view_name", view),
    ];
    all.map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect()
}

fn view_of(model: &str) -> Content {
    let view = json!({ "version_major": 2, "version_minor": 1, "model_id": model });
    Content::default().with(VIEW, view.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::display::wire;

    /// Sends what the page would send.
    fn page_sends(id: &str, data: Value) {
        let message = wire::Comm { id: id.to_owned(), kind: wire::CommKind::Message, data };
        comm::receive(&serde_json::to_string(&message).unwrap(), true);
    }

    #[test]
    fn a_change_on_the_page_calls_the_function_and_keeps_the_rest_of_the_state() {
        let (send, changes) = std::sync::mpsc::channel();
        let widget =
            Widget::new("export default {}", json!({"a": 1, "b": 2})).show(move |widget| {
                let _ = send.send((widget.get("a"), widget.get("b")));
            });
        page_sends(&widget.id, json!({"method": "request_state"}));
        page_sends(&widget.id, json!({"method": "update", "state": {"b": 3}}));
        let changed = changes.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        assert_eq!(changed, (Some(json!(1)), Some(json!(3))));
        widget.set("a", json!(7));
        assert_eq!((widget.get("a"), widget.get("b")), (Some(json!(7)), Some(json!(3))));
    }

    #[test]
    fn a_slider_starts_inside_its_range_and_shows_as_many_digits_as_its_step() {
        let format = |slider: Slider| {
            let state = slider.state();
            (state["value"].clone(), state["readout_format"].clone())
        };
        let slider = || Slider::new("t", 0.0..=5.0);
        assert_eq!(format(slider()), (json!(2.5), json!(".2f")));
        assert_eq!(format(slider().start(9.0).step(1.0)), (json!(5.0), json!(".0f")));
        assert_eq!(format(slider().start(-1.0).step(0.1)), (json!(0.0), json!(".1f")));
        assert_eq!(format(slider().step(0.25)), (json!(2.5), json!(".2f")));
    }
}
