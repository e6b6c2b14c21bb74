// A plan of many nodes: a cell for each stage, on a canvas, in columns of pipelines. Arrow keys and the pointer name a cell.

import { make, named } from './dom.js';
import { describe } from './pipelines.js';

const least = 5, most = 14, gap = 1;
let chosen = 0; // the cell that is named; it stays when the field is drawn anew

// lay returns how the pipelines stand: rows of cells, as many columns side by side as are needed.
function lay(pipelines, width) {
  const columns = Math.max(1, Math.min(8, Math.ceil(pipelines / 80)));
  const rows = Math.ceil(pipelines / columns);
  const size = Math.max(least, Math.min(most, Math.floor(420 / rows)));
  return { columns, rows, size, width: (width - 8 * (columns - 1)) / columns };
}

// boxes returns where each stage is drawn: as wide as it has layers.
function boxes(all, plan, { rows, size, width }) {
  return all.map((one) => {
    const column = Math.floor(one.pipeline / rows), row = one.pipeline % rows;
    const x = column * (width + 8) + (one.first / plan.layers) * width;
    return { one, x, y: row * size, w: Math.max(1, ((one.end - one.first) / plan.layers) * width - gap), h: size - gap };
  });
}

function paint(canvas, cells, alone) {
  const style = getComputedStyle(document.documentElement);
  const ratio = devicePixelRatio || 1;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const colours = {};
  for (const { one, x, y, w, h } of cells) {
    context.fillStyle = colours[one.state] ??= style.getPropertyValue(`--${one.state}`);
    context.fillRect(x, y, w, h);
    if (!alone.has(one.node)) continue;
    context.fillStyle = style.getPropertyValue('--lost');
    context.fillRect(x, y + h - 2, w, 2);
  }
  const { x, y, w, h } = cells[chosen];
  context.strokeStyle = style.getPropertyValue('--focus');
  context.lineWidth = 2;
  if (document.activeElement === canvas) context.strokeRect(x, y, w, h);
}

// steps says to which pipeline and stage an arrow key leads.
const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// field returns the canvas and a line that names the chosen cell.
export function field(all, plan, alone) {
  const width = Math.max(260, document.getElementById('pipelines').clientWidth);
  const laid = lay(plan.pipelines.length, width), cells = boxes(all, plan, laid), ratio = devicePixelRatio || 1;
  const canvas = make('canvas', {
    width: Math.round(width * ratio), height: Math.round(laid.rows * laid.size * ratio), tabindex: 0, role: 'application', 'data-key': 'field',
    'aria-label': `${all.length} stages of ${plan.pipelines.length} pipelines; arrow keys name them`, style: { height: `${laid.rows * laid.size}px` },
  });
  const line = make('p', { class: 'note', 'aria-live': 'polite' });
  chosen = Math.min(chosen, cells.length - 1);
  const choose = (i) => {
    if (i < 0) return;
    chosen = i;
    line.textContent = named(describe(all[i], alone));
    paint(canvas, cells, alone);
  };
  canvas.addEventListener('keydown', (event) => {
    const [down, right] = steps[event.key] ?? [];
    if (down === undefined) return;
    event.preventDefault();
    const { pipeline, stage } = all[chosen];
    choose(all.findIndex((one) => one.pipeline === pipeline + down && one.stage === Math.min(stage + right, plan.pipelines[pipeline + down]?.nodes.length - 1)));
  });
  canvas.addEventListener('pointermove', ({ offsetX, offsetY }) => choose(cells.findIndex(({ x, y, w, h }) => offsetX >= x && offsetX <= x + w && offsetY >= y && offsetY <= y + h)));
  canvas.addEventListener('focus', () => choose(chosen));
  canvas.addEventListener('blur', () => paint(canvas, cells, alone));
  paint(canvas, cells, alone);
  line.textContent = `${all.length} stages; the pointer and arrow keys name them`;
  return [canvas, line];
}
