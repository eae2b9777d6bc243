// What in the past mattered for the prediction at the cursor.

const REACH = 40; // characters looked back at
const REST = 250; // milliseconds the cursor must rest

class InfluencePanel {
  constructor(app, model, root) {
    Object.assign(this, { app, model, values: [], count: 0 });
    this.tape = new Tape(app, root, "influence", (t) => {
      return Number.isFinite(this.values[t]) ? `${number(this.values[t], 3)} bits` : "not looked at";
    });
    this.told = root.querySelector(".influence-told");
  }

  // The last answer stays until the cursor has rested.
  later() {
    clearTimeout(this.timer);
    this.stop?.abort();
    this.timer = setTimeout(
      () =>
        this.update().catch((error) => {
          if (error.name !== "AbortError") this.told.textContent = error.message;
        }),
      REST,
    );
  }

  async update() {
    const { app, model } = this,
      count = app.cursor;
    this.values = new Float32Array(app.text.bytes.length).fill(NaN);
    if (count > 0 && count <= model.length) {
      this.stop = new AbortController();
      model.reading.signal.addEventListener("abort", () => this.stop.abort());
      const last = app.text.characterOf[count - 1],
        characters = app.text.characters.slice(Math.max(last + 1 - REACH, 0), last + 1);
      const spans = characters.map(({ first, behind }) => [first, Math.min(behind, count)]);
      const forced = model.isTouched ? model.forced.slice() : null;
      const found = await model.engine.call("influence", { count, spans, forced }, { signal: this.stop.signal });
      spans.forEach(([first, behind], n) => this.values.fill(found[n], first, behind));
      const most = found.indexOf(Math.max(...found)),
        { shown, first } = characters[most],
        back = last - app.text.characterOf[first];
      const where = back ? `${back} characters before the last` : "the last character";
      this.told.textContent = `Most: “${nameOfCharacter(shown)}”, ${where} (${number(found[most], 2)} bits).`;
    } else {
      this.told.textContent = "";
    }
    this.draw();
  }

  draw() {
    const roots = this.values.map(Math.sqrt),
      most = Math.max(...roots.filter(Number.isFinite), 0.1);
    const row = (window) =>
      tapeRow(window, roots, { y: 26, height: 56, most, label: "√bits", colour: theme().layers[3] });
    const table = ({ first, behind }) => [
      ["character", "bits"],
      ...Array.from({ length: behind - first }, (_, n) => [first + n, this.values[first + n]])
        .filter(([, value]) => Number.isFinite(value))
        .map(([t, value]) => [this.app.text.nameOf(t), number(value, 3)]),
    ];
    this.tape.draw(88, row, "Influence of earlier characters on the prediction at the cursor, in bits.", table);
  }
}
