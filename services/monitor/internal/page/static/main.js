import { open } from './stream.js';
import * as status from './status.js';
import './training.js';
import './change.js';
import './pipelines.js';
import './overlay.js';
import './history.js';
import './nodes.js';

open(status.tell);
