// What a class is shown, on its pages in Explore: the teacher's tells the server where the explorer stands, a student's
// asks the server and has the explorer go there. Neither runs a script of the server's while a dial moves.

const EVERY = 400; // ms between two questions of a student
const HIDDEN = 4000; // ms, in a tab that nobody sees
const AGAIN = 2000; // ms after one that came to nothing
const PATIENCE = 5000; // ms
const TELLS = 200; // ms between two messages of the teacher, at the least
const LEFT = 400; // ms without a move after which the script is told that the student goes on alone
const PARTS = ["dial", "gamma", "overlay", "selected"];

let page = null; // what is on this page now; one at a time

/** Beside the page's own address, whatever stands before it. */
function route() {
  const { origin, pathname } = window.location;
  return new URL("classroom/shown", origin + pathname.replace(/\/+$/, ""));
}

async function asked(url, how = {}) {
  return fetch(url, { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE), ...how });
}

class Student {
  constructor() {
    this.version = ""; // of what was read last
    this.position = null; // that
    this.stands = null; // where the explorer was sent last
    this.told = ""; // the version of which the script was told that another run is shown
    this.turned = (event) => this.leave(event.detail);
    window.addEventListener("mars-viz-stands", this.turned);
    this.ask();
  }

  receive(data, trigger) {
    if (data.following && !this.data?.following) Object.assign(this, { left: false, stands: null });
    if (data.key !== this.data?.key) this.stands = null;
    Object.assign(this, { data, trigger });
    this.go();
  }

  async ask() {
    let wait = EVERY;
    const url = route();
    url.searchParams.set("since", this.version);
    try {
      const answer = await asked(url);
      if (answer.status === 200) {
        this.position = await answer.json();
        this.version = this.position.version;
      } else if (answer.status !== 204) wait = AGAIN;
    } catch {
      wait = AGAIN;
    }
    if (this.closed) return;
    this.go();
    this.asking = setTimeout(() => this.ask(), document.hidden ? Math.max(wait, HIDDEN) : wait);
  }

  /** Have the explorer go where the teacher's is; another run is for the script to open. */
  go() {
    const { position, data } = this;
    if (!position || !data) return;
    const { run, cuts } = position;
    if ((run ?? "") !== data.run || (run && cuts !== data.cuts)) {
      if (this.told !== this.version) this.trigger("changed", (this.told = this.version));
      return;
    }
    if (!run || !data.following || this.left) return;
    const news = PARTS.filter((name) => position[name] !== this.stands?.[name]);
    if (!news.length) return;
    const detail = { key: data.key, ...Object.fromEntries(news.map((name) => [name, position[name]])) };
    const heard = !window.dispatchEvent(new CustomEvent("mars-viz-go", { detail, cancelable: true }));
    if (heard) this.stands = position; // else it is not there yet
  }

  /** The student's own hand has moved the dial: from here on it is theirs. */
  leave({ key, turned }) {
    if (!turned || !this.data?.following || key !== this.data.key) return;
    this.left = true;
    clearTimeout(this.leaving);
    this.leaving = setTimeout(() => this.trigger("left", Date.now()), LEFT);
  }

  close() {
    this.closed = true;
    clearTimeout(this.asking);
    clearTimeout(this.leaving);
    window.removeEventListener("mars-viz-stands", this.turned);
  }
}

class Teacher {
  constructor() {
    this.stood = (event) => this.tell(event.detail);
    window.addEventListener("mars-viz-stands", this.stood);
  }

  receive(data, trigger) {
    Object.assign(this, { data, trigger });
  }

  tell(position) {
    if (!this.data || position.key !== this.data.key) return;
    this.next = position;
    if (!this.telling) this.send();
  }

  async send() {
    const { next, data } = this;
    this.next = null;
    this.telling = true;
    let wait = TELLS;
    const began = performance.now();
    const parts = [["run", data.run], ["cuts", data.cuts ? 1 : null], ...PARTS.map((name) => [name, next[name] ?? null])];
    try {
      const answer = await asked(route(), { method: "POST", body: new URLSearchParams(parts.filter(([, value]) => value !== null)) });
      if (answer.status >= 400 && answer.status < 500 && !this.closed) this.trigger("changed", Date.now());
    } catch {
      this.next ??= next; // once the server is back
      wait = AGAIN;
    }
    setTimeout(() => {
      this.telling = false;
      if (this.next && !this.closed) this.send();
    }, Math.max(0, wait - (performance.now() - began)));
  }

  close() {
    this.closed = true;
    window.removeEventListener("mars-viz-stands", this.stood);
  }
}

export default function ({ data, setTriggerValue }) {
  const [told] = data;
  const Role = told.teaches ? Teacher : Student;
  if (!(page instanceof Role)) {
    page?.close();
    page = new Role();
  }
  const mine = page;
  mine.receive(told, setTriggerValue);
  return () => {
    mine.close();
    if (page === mine) page = null;
  };
}
