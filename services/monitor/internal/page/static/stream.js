// What the monitor tells, as it changes: parts by key. Whoever listens hears once a frame which keys changed.

export const token = new URLSearchParams(location.search).get('token') ?? '';

// address of something that the monitor serves, with the token of this page's link.
export const address = (path) => (token ? `${path}?token=${encodeURIComponent(token)}` : path);

const parts = new Map();
const listeners = [];
let changed = new Set();
let offset = 0; // from this clock to the monitor's
let frame = 0;

export const part = (key) => parts.get(key);
export const now = () => Date.now() + offset;

// under returns the parts whose keys begin so, as [rest of the key, part].
export const under = (beginning) => [...parts].filter(([key]) => key.startsWith(beginning))
  .map(([key, value]) => [key.slice(beginning.length), value]);

// listen calls draw with the changed keys whenever one begins with one of these.
export const listen = (beginnings, draw) => listeners.push({ beginnings, draw });

function take(message) {
  offset = message.at - Date.now();
  if (message.anew) {
    for (const key of parts.keys()) changed.add(key);
    parts.clear();
  }
  for (const [key, value] of Object.entries(message.parts)) {
    changed.add(key);
    if (value === null) parts.delete(key);
    else parts.set(key, value);
  }
  frame ||= requestAnimationFrame(draw);
  setTimeout(draw, 250); // a page that nobody sees gets no frames
}

function draw() {
  if (!changed.size) return;
  cancelAnimationFrame(frame);
  frame = 0;
  const keys = changed;
  changed = new Set();
  for (const listener of listeners) {
    if ([...keys].some((key) => listener.beginnings.some((beginning) => key.startsWith(beginning)))) listener.draw(keys);
  }
  if (!performance.getEntriesByName('drawn').length) performance.mark('drawn');
}

const patience = 5000; // before a monitor that refused is asked again

// open hears the monitor for ever, and calls tell with how that is.
export function open(tell) {
  const source = new EventSource(address('events'));
  source.onopen = () => tell('live');
  source.onmessage = (event) => take(JSON.parse(event.data));
  source.onerror = async () => {
    tell('lost');
    if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
    const why = await fetch(address('changes/0')).catch(() => undefined); // an EventSource keeps the reason to itself
    if (why?.status === 403) tell('refused');
    setTimeout(() => open(tell), patience);
  };
}
