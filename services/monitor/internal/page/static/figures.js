// How figures are written, and which colour a phase has.

export function bytes(count) {
  let value = count;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (value < 1000 || unit === 'TiB') return `${+value.toPrecision(3)} ${unit}`;
    value /= 1024;
  }
}

export function seconds(value) {
  if (!value) return '0 s';
  if (value < 1e-3) return `${+(value * 1e6).toPrecision(3)} µs`;
  if (value < 1) return `${+(value * 1e3).toPrecision(3)} ms`;
  if (value < 600) return `${+value.toPrecision(3)} s`;
  if (value < 2 * 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${Math.round(value / 86400)} d`;
}

export const short = (value) => (value ? `${+value.toPrecision(3)}` : '0');

export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString([], { hour12: false });

// layers counts from 0 and includes both ends.
export const layers = (first, end) => (end - first === 1 ? `layer ${first}` : `layers ${first}–${end - 1}`);

export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

// phases of a change in their order, each with its colour.
export const phases = {
  notice: 'notice', 'wait to begin': 'wait', 'earlier attempts': 'wait', consent: 'consent', plan: 'plan', restore: 'restore',
  'pre-copy': 'copy', promise: 'promise', transfer: 'transfer', commit: 'commit', 'first step': 'step',
};

export const colour = (phase) => `var(--${phases[phase] ?? 'wait'})`;

// states of nodes, those that want attention first, with the mark that says the same without colour.
export const states = { lost: '✕', silent: '…', suspected: '?', leaving: '←', joining: '→', starting: '·', spare: '○', training: '', ended: '■' };
