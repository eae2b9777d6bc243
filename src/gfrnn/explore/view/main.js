// The page: what the user does comes in here, and goes to the models and the pictures.

class App {
  constructor() {
    const data = (id) => JSON.parse(document.getElementById(id).textContent);
    Object.assign(this, { text: new Text(""), cursor: 0, selection: [0, 0], unknown: "replace" });
    this.models = data("models").map((packed, index) => new Model(packed, index));
    document.getElementById("models").remove();
    this.examples = data("examples");
    document.body.classList.toggle("two", this.models.length > 1);
    this.told = document.getElementById("told");
    this.progress = document.getElementById("progress");
    this.editor = new Editor(this);
    const template = document.getElementById("panel"),
      place = document.getElementById("panels");
    this.panels = this.models.map((model) => {
      place.append(template.content.cloneNode(true));
      return new Panel(this, model, place.lastElementChild);
    });
    this.colouring = new Colouring(this);
    this.writing = new Writing(this);
    this.address = new Address(this);
    this.connect();
    this.ready = Promise.all(this.models.map((model) => model.ready)).then(() => {
      const threads = this.models[0].engine.place,
        kernel = this.models[0].simd ? "WebAssembly SIMD" : "plain JavaScript";
      document.getElementById("engine-told").textContent = `Runs in ${threads}, by ${kernel}.`;
      return this.open(location.hash);
    });
    offer(this);
  }

  connect() {
    const on = (id, event, act) => document.getElementById(id).addEventListener(event, act);
    const choice = document.getElementById("example");
    this.examples.forEach(({ name }, n) => choice.append(element("option", { value: String(n) }, name)));
    choice.addEventListener("change", () => {
      if (choice.value !== "") this.replaceText(this.examples[Number(choice.value)].text);
      choice.value = "";
    });
    on("unknown", "change", (event) => {
      this.unknown = event.target.value;
      this.refresh();
    });
    on("theme", "click", () => this.switchTheme());
    on("save-json", "click", () => save("gfrnn.json", JSON.stringify(numbersOf(this), null, 1), "application/json"));
    on("save-text", "click", () => save("text.svg", textPicture(this), "image/svg+xml"));
    on("step-back", "click", () => this.step(-1));
    on("step-on", "click", () => this.step(1));
    on("play", "click", () => this.play());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    let width = innerWidth;
    addEventListener("resize", () => {
      if (width !== innerWidth) requestAnimationFrame(() => this.redraw());
      width = innerWidth;
    });
  }

  // The view an address describes, or the first example.
  open(hash) {
    const view = readAddress(hash, this.models);
    if (hash.length > 1 && !view) this.say("The address of the page could not be read: it holds no text.");
    const [string, leftOut] = fitting(view?.string ?? this.examples[0].text);
    if (leftOut) this.say(`The text in the address was too long: ${leftOut} bytes were left out.`);
    view?.forced.forEach((forced, m) => {
      if (forced) this.models[m].forced = forced;
      this.panels[m].switches.show();
    });
    const text = new Text(string);
    const cursor = text.indexBehind(Math.min(view?.cursor ?? Math.floor(text.bytes.length / 2), text.bytes.length));
    this.editor.fill(text.string, cursor);
    return this.setText(text.string, cursor, cursor).then(() => this.editor.reveal());
  }

  replaceText(string) {
    this.editor.fill(fitting(string)[0], 0);
    const end = this.editor.area.value.length;
    this.editor.fill(this.editor.area.value, end);
    this.setText(this.editor.area.value, end, end);
  }

  setText(string, from, to) {
    this.text = new Text(string);
    this.place(from, to);
    this.editor.draw(this.text);
    return this.refresh();
  }

  place(from, to) {
    this.selection = [this.text.bytesBefore(from), this.text.bytesBefore(to)];
    this.cursor = this.selection[1];
    this.editor.area.setAttribute("aria-description", `cursor behind byte ${this.cursor} of ${this.text.bytes.length}`);
  }

  setCursor(from, to) {
    const before = String(this.selection);
    this.place(from, to);
    if (String(this.selection) !== before) this.cursorMoved();
  }

  // Put the cursor behind so many bytes, by other means than the text field.
  goto(count) {
    const index = this.text.indexBehind(Math.min(Math.max(count, 0), this.text.bytes.length));
    this.editor.fill(this.text.string, index);
    this.place(index, index);
    this.cursorMoved();
    this.editor.reveal();
  }

  step(by) {
    const { characters, characterOf } = this.text,
      here = this.cursor ? characterOf[this.cursor - 1] : -1;
    const to = Math.min(here + by, characters.length - 1);
    this.goto(to < 0 ? 0 : characters[to].behind);
    return to < characters.length - 1;
  }

  play() {
    const button = document.getElementById("play"),
      isPlaying = this.playing !== undefined;
    clearInterval(this.playing);
    this.playing = isPlaying
      ? undefined
      : setInterval(() => {
          if (!this.step(1)) this.play();
        }, 250);
    button.setAttribute("aria-pressed", String(!isPlaying));
    button.textContent = isPlaying ? "Play" : "Stop";
  }

  cursorMoved() {
    this.editor.mark(this.cursor ? this.text.characterOf[this.cursor - 1] : undefined);
    this.address.later();
    for (const panel of this.panels) {
      if (panel.model.length === this.text.bytes.length && !panel.isReading) panel.cursorMoved().catch(ignoreStop);
    }
  }

  // Read the text anew with all models.
  async refresh() {
    this.address.later();
    await Promise.all(this.panels.map((panel) => this.readWith(panel)));
    const total = this.models.map(
      ({ name, bits }) => `${name}: ${bits.length ? number(mean(bits), 3) : "no"} bits per character`,
    );
    document.getElementById("spoken").textContent = total.join("; ");
  }

  async readWith(panel) {
    const { model } = panel,
      text = this.text;
    panel.isReading = true;
    try {
      await model.read(text, this.unknown, (done) => this.showProgress(done, text.bytes.length));
      panel.isReading = false;
      await panel.textChanged();
      if (model.replaced)
        this.say(`${model.replaced} bytes that ${model.name} does not know are read as “?”; they are underlined.`);
    } catch (error) {
      if (error.name === "AbortError") return;
      model.reading?.abort();
      model.forget();
      panel.isReading = false;
      panel.units.values = panel.influence.values = [];
      panel.drawText();
      panel.draw();
      panel.drawNext();
      this.say(`${error.message}.`);
    }
    this.showProgress(0, 0);
    this.colouring.paint();
    this.editor.mark(this.cursor ? this.text.characterOf[this.cursor - 1] : undefined);
  }

  touched(model) {
    this.address.later();
    return this.readWith(this.panels[model.index]);
  }

  showProgress(done, of) {
    this.progress.hidden = done >= of;
    this.progress.max = of || 1;
    this.progress.value = done;
  }

  say(words) {
    this.told.textContent = words;
  }

  switchTheme() {
    document.documentElement.dataset.theme = themeName() === "dark" ? "light" : "dark";
    this.redraw();
  }

  redraw() {
    this.colouring.paint();
    for (const panel of this.panels) {
      panel.drawText();
      panel.draw();
    }
  }
}

function ignoreStop(error) {
  if (error.name !== "AbortError") throw error;
}

new App();
