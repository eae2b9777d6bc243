// Writing on from the cursor, character by character; two models side by side, with their tags marked.

const DRAWN_EVERY = 60; // milliseconds

class Writing {
  constructor(app) {
    this.app = app;
    this.form = document.getElementById("writing");
    this.told = document.getElementById("writing-told");
    this.stopButton = this.form.querySelector(".stop");
    this.columns = app.models.map((model) => this.column(model));
    document.getElementById("written").append(...this.columns.map(({ root }) => root));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.write();
    });
    this.stopButton.addEventListener("click", () => this.stop.abort());
  }

  column(model) {
    const text = element("pre", {
      class: "written",
      tabindex: "0",
      role: "group",
      "aria-label": `text written by ${model.name}`,
    });
    const counts = element("table", { class: "numbers" }),
      keep = element("button", { type: "button", disabled: true }, "Take over into the text");
    const column = { model, text, counts, keep, drawn: "", prompt: "" };
    keep.addEventListener("click", () => this.app.replaceText(column.prompt + column.drawn));
    column.root = element(
      "div",
      {},
      element("h3", {}, model.name),
      text,
      keep,
      element("details", {}, element("summary", {}, "tags opened and closed"), counts),
    );
    return column;
  }

  get options() {
    const value = (name) => this.form.elements[name].value.trim();
    return {
      max_new: Number(value("max_new")),
      temperature: value("temperature"),
      top_k: value("top_k"),
      top_p: value("top_p"),
      seed: value("seed"),
    };
  }

  async write() {
    const { app } = this;
    this.stop?.abort();
    this.stop = new AbortController();
    try {
      const options = this.options,
        sampling = readSampling(options);
      if (!(Number.isInteger(options.max_new) && options.max_new >= 1))
        throw new Error("characters must be a whole number of 1 or more");
      if (app.cursor === 0) throw new Error("there is no text before the cursor to go on from");
      this.told.textContent = `Seed ${sampling.seed}: gfrnn generate --half with the same options writes the same.`;
      this.stopButton.disabled = false;
      await Promise.all(this.columns.map((column) => this.run(column, options.max_new, sampling, this.stop.signal)));
    } catch (error) {
      this.told.textContent = error.name === "AbortError" ? "Stopped." : `${error.message}.`;
    }
    this.stopButton.disabled = true;
  }

  async run(column, max_new, sampling, signal) {
    const { app } = this,
      { model } = column,
      decoder = new TextDecoder();
    Object.assign(column, { drawn: "", prompt: app.text.string.slice(0, app.text.indexBehind(app.cursor)) });
    const { symbols } = symbolsOf(app.text.bytes.subarray(0, app.cursor), model.vocabulary, app.unknown);
    column.keep.disabled = true;
    const told = (news) => {
      if (!Array.isArray(news)) return;
      column.drawn += decoder.decode(
        Uint8Array.from(news, (symbol) => model.vocabulary[symbol]),
        { stream: true },
      );
      column.due ??= setTimeout(() => this.show(column), DRAWN_EVERY);
    };
    const forced = model.isTouched ? model.forced.slice() : null;
    try {
      await model.engine.call("generate", { symbols, forced, max_new, sampling, told: true }, { told, signal });
      column.drawn += decoder.decode();
    } finally {
      column.keep.disabled = !column.drawn;
      this.show(column);
    }
  }

  show(column) {
    const { model, text, counts, prompt, drawn } = column;
    clearTimeout(column.due);
    column.due = null;
    const tail = prompt.slice(-200),
      whole = prompt + drawn,
      start = whole.length - drawn.length;
    let at = 0;
    const marked = tagPieces(whole).flatMap(([words, kind]) => {
      const from = Math.max(at, start),
        piece = words.slice(Math.max(from - at, 0));
      at += words.length;
      return at <= start ? [] : [kind ? element("span", { class: `tag ${kind}` }, piece) : piece];
    });
    text.replaceChildren(
      element("span", { class: "prompt" }, tail.length < prompt.length ? `…${tail}` : tail),
      ...marked,
    );
    const rows = Object.entries(tags(whole)).map(([name, [opened, closed]]) =>
      element(
        "tr",
        { class: opened === closed ? "" : "uneven" },
        element("th", { scope: "row" }, name),
        element("td", {}, String(opened)),
        element("td", {}, String(closed)),
      ),
    );
    const head = element(
      "tr",
      {},
      ...[model.name, "opened", "closed"].map((words) => element("th", { scope: "col" }, words)),
    );
    counts.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  }
}
