// The text: a plain text field, and behind it the same text whose characters carry the colours.

class Editor {
  constructor(app) {
    this.app = app;
    this.area = document.getElementById("text");
    this.mirror = document.getElementById("mirror");
    this.spans = [];
    this.area.addEventListener("input", () => this.typed());
    document.addEventListener("selectionchange", () => this.moved());
    this.area.addEventListener("keyup", () => this.moved());
    this.area.addEventListener("click", () => this.moved());
  }

  typed() {
    const [kept, leftOut] = fitting(this.area.value);
    if (leftOut) {
      this.area.value = kept;
      const limit = LONGEST.toLocaleString("en");
      this.app.say(
        `The page shows texts of up to ${limit} bytes: ${leftOut.toLocaleString("en")} more were left out ` +
          "(gfrnn eval --data FILE scores a whole file, and so does gfrnn.score(text) in this page's console).",
      );
    } else {
      this.app.say("");
    }
    this.app.setText(kept, this.area.selectionStart, this.area.selectionEnd);
  }

  moved() {
    if (document.activeElement === this.area) this.app.setCursor(this.area.selectionStart, this.area.selectionEnd);
  }

  // Put a text and a cursor into the field, as if they had been typed.
  fill(string, from, to = from) {
    if (this.area.value !== string) this.area.value = string;
    this.area.setSelectionRange(from, to);
  }

  // One span per character; what is the same at both ends stays.
  draw(text) {
    const shown = text.characters.map(({ shown }) => shown),
      old = this.spans.map((span) => span.textContent);
    let head = 0,
      tail = 0;
    while (head < shown.length && head < old.length && shown[head] === old[head]) head++;
    while (tail < Math.min(shown.length, old.length) - head && shown.at(-1 - tail) === old.at(-1 - tail)) tail++;
    const added = shown.slice(head, shown.length - tail).map((character) => element("span", {}, character));
    const removed = this.spans.splice(head, old.length - tail - head, ...added);
    removed.forEach((span) => span.remove());
    const before = this.spans[head + added.length] ?? this.mirror.querySelector(".end");
    const pieces = document.createDocumentFragment();
    pieces.append(...added);
    this.mirror.insertBefore(pieces, before);
  }

  // `colourOf` answers for every character, null for none.
  paint(colourOf, isUnknown) {
    this.spans.forEach((span, n) => {
      const colour = colourOf(n) ?? "";
      if (span.dataset.colour !== colour) {
        span.dataset.colour = colour;
        span.style.backgroundColor = colour;
      }
      span.classList.toggle("unknown", isUnknown(n));
    });
  }

  mark(character) {
    this.marked?.classList.remove("here");
    this.marked = this.spans[character];
    this.marked?.classList.add("here");
  }

  // Scroll the field, not the page, to the cursor.
  reveal() {
    const frame = this.mirror.parentElement,
      height = frame.clientHeight;
    if (!this.marked) frame.scrollTop = 0;
    else if (this.marked.offsetTop < frame.scrollTop + 10) frame.scrollTop = this.marked.offsetTop - height / 3;
    else if (this.marked.offsetTop > frame.scrollTop + height - 40)
      frame.scrollTop = this.marked.offsetTop - height * 0.6;
  }
}

// What the colours of the text mean, and which there are to choose from.
class Colouring {
  constructor(app) {
    this.app = app;
    this.choice = document.getElementById("colouring");
    this.legend = document.getElementById("legend");
    const option = (value, words) => this.choice.append(element("option", { value }, words));
    app.models.forEach(({ name }, m) => option(`bits-${m}`, app.models.length > 1 ? `bits, ${name}` : "bits"));
    if (app.models.length > 1) option("difference", "which model is better");
    app.models.forEach(({ name }, m) => {
      option(`change-${m}`, `change by the switches${app.models.length > 1 ? `, ${name}` : ""}`);
      option(`unit-${m}`, `the hidden unit chosen${app.models.length > 1 ? `, ${name}` : ""}`);
    });
    this.choice.addEventListener("change", () => this.paint());
  }

  choose(value) {
    this.choice.value = value;
    this.paint();
  }

  paint() {
    const { app } = this,
      [kind, m] = this.choice.value.split("-"),
      model = app.models[m ?? 0];
    const span = (values, n) => {
      const { first, behind } = app.text.characters[n];
      let total = 0;
      for (let t = first; t < behind; t++) total += values[t];
      return total;
    };
    const read = (values) => values.length === app.text.bytes.length;
    const colourings = {
      bits: [
        model.bits,
        (n) => costColour(span(model.bits, n)),
        [0, 2, 4, 6, 8].map((b) => [costColour(b), `${b}`]),
        "bits",
      ],
      difference: [
        app.models.at(-1).bits,
        (n) => signColour(span(app.models[0].bits, n) - span(app.models[1].bits, n), 3),
        this.signs(3, `${app.models[0].name} is cheaper`, `${app.models[1]?.name} is cheaper`),
        "bits",
      ],
      change: [
        model.bits,
        (n) => signColour(span(model.bits, n) - span(model.learntBits, n), 2),
        this.signs(2, "cheaper", "dearer"),
        "bits",
      ],
      unit: [
        app.panels[model.index].units.values,
        (n) => signColour(app.panels[model.index].units.values[app.text.characters[n].behind - 1], 1),
        this.signs(1, "", ""),
        `h of unit ${app.panels[model.index].units.name}`,
      ],
    };
    const [values, colourOf, stops, unit] = colourings[kind];
    app.editor.paint(read(values) ? colourOf : () => null, (n) => this.isUnknown(n));
    this.legend.replaceChildren(
      ...stops.map(([colour, words]) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.backgroundColor = colour;
        return element("span", {}, swatch, words);
      }),
      element("span", {}, unit),
    );
  }

  signs(most, below, above) {
    const stop = (value, words) => [signColour(value, most), `${signed(value, 0)} ${words}`.trim()];
    return [stop(-most, below), [signColour(0, most), "0"], stop(most, above)];
  }

  isUnknown(n) {
    const { first, behind } = this.app.text.characters[n];
    const bytes = this.app.text.bytes.subarray(first, behind);
    return this.app.models.some((model) => bytes.some((byte) => !model.known.has(byte)));
  }
}
