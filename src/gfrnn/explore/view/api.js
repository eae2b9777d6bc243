// window.gfrnn: the model for scripts and tests. `text` is a string or bytes; options.model chooses the second model,
// options.gates (L x L, [to][from], null: as learnt) holds gates, options.unknown is "refuse" or "replace".

function offer(app) {
  const asked = async (text, options = {}, name = "the text") => {
    const model = app.models[options.model ?? 0];
    if (!model) throw new Error(`there is no model ${options.model}: the page has ${app.models.length}`);
    const bytes = typeof text === "string" ? encoder.encode(text) : Uint8Array.from(text);
    const { symbols } = symbolsOf(bytes, model.vocabulary, options.unknown ?? "refuse", name);
    await model.ready;
    return { model, symbols, forced: options.gates ? options.gates.flat() : null };
  };
  const scored = async (text, options, more) => {
    const { model, symbols, forced } = await asked(text, options);
    return { model, ...(await model.engine.call("score", { symbols, forced, ...more }, { told: options?.told })) };
  };
  const bytes = async (prompt, options = {}) => {
    const { model, symbols, forced } = await asked(prompt, options, "the prompt");
    if (!symbols.length) throw new Error("the prompt is empty: give at least one character to go on from");
    const max_new = options.max_new ?? options.chars ?? 500;
    if (!(Number.isInteger(max_new) && max_new >= 0)) throw new Error(`max_new must be 0 or more, got ${max_new}`);
    const sampling = readSampling(options);
    const drawn = await model.engine.call("generate", { symbols, forced, max_new, sampling });
    return Uint8Array.from(drawn, (symbol) => model.vocabulary[symbol]);
  };
  window.gfrnn = {
    models: app.models.map(({ name, config, parameters }) => ({ name, config, parameters })),
    // The bits of every byte, the first included, as CharLM.score has them.
    async score(text, options) {
      return Array.from((await scored(text, options)).bits);
    },
    // g of every byte: [byte][to][from].
    async gates(text, options) {
      const { model, gates } = await scored(text, options, { withGates: true });
      return gates.flatMap((g) => nested(g, model.L));
    },
    // The logits after every byte: [byte][symbol].
    async logits(text, options) {
      return (await scored(text, options, { withLogits: true })).logits.map((row) => Array.from(row));
    },
    // The text that follows a prompt: {max_new, temperature, top_k, top_p, seed}.
    async generate(prompt, options) {
      return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await bytes(prompt, options));
    },
    async generateBytes(prompt, options) {
      return Array.from(await bytes(prompt, options));
    },
    numbers: () => numbersOf(app),
    ready: app.ready,
  };
}
