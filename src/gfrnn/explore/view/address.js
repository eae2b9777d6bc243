// The address holds the text, the cursor and the switches, so that a view can be sent.

function addressOf(app) {
  const parts = [`t=${encodeURIComponent(new TextDecoder().decode(app.text.bytes))}`, `c=${app.cursor}`];
  app.models.forEach((model, m) => {
    if (model.isTouched) parts.push(`g${m}=${model.forced.map((value) => value ?? "").join(",")}`);
  });
  return `#${parts.join("&")}`;
}

// What an address says; null where it says nothing that can be read.
function readAddress(hash, models) {
  const parts = Object.fromEntries(
    hash
      .replace(/^#/, "")
      .split("&")
      .map((part) => {
        const at = part.indexOf("=");
        return [part.slice(0, at), part.slice(at + 1)];
      }),
  );
  if (parts.t === undefined) return null;
  let string;
  try {
    string = decodeURIComponent(parts.t);
  } catch {
    return null;
  }
  const forced = models.map((model, m) => {
    const values = (parts[`g${m}`] ?? "").split(",").map((word) => (word === "" ? null : Number(word)));
    const isFine =
      values.length === model.L * model.L && values.every((value) => value === null || (value >= 0 && value <= 1));
    return isFine ? values : null;
  });
  return { string, cursor: Math.max(Math.floor(Number(parts.c)) || 0, 0), forced };
}

class Address {
  constructor(app) {
    this.app = app;
    document.getElementById("copy-link").addEventListener("click", () => this.copy());
    // What the event says, not location: by now the view before may have been written there.
    addEventListener("hashchange", ({ newURL }) => {
      const { hash } = new URL(newURL);
      if (hash !== this.written) app.open(hash);
    });
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), 300);
  }

  write() {
    this.written = addressOf(this.app);
    try {
      history.replaceState(null, "", this.written);
    } catch {
      // some browsers count how often, or do not allow it for files
      location.replace(this.written);
    }
  }

  async copy() {
    clearTimeout(this.timer);
    this.write();
    try {
      await navigator.clipboard.writeText(location.href);
      this.app.say("The address is copied: it holds the text, the cursor and the switches.");
    } catch {
      this.app.say(
        "The address of this page holds the text, the cursor and the switches: copy it from the browser's address bar.",
      );
    }
  }
}
