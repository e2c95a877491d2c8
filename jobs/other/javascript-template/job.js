// A job in JavaScript: fills in a text template. Payload: {"template": "Dear {{name}}, ...", "values": {"name": "Ada"}}.
import { log } from 'leasehold:job/host@1.0.0';

export const handler = {
  run(job, payload) {
    const { template, values } = parse(payload);
    const missing = new Set();
    const text = template.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (whole, path) => {
      const value = path.split('.').reduce((at, key) => (Object.hasOwn(Object(at), key) ? at[key] : undefined), values);
      if (value === undefined) missing.add(path);
      return String(value);
    });
    if (missing.size > 0) dead(`the template names what values lack: ${[...missing].join(', ')}`);
    log('info', `attempt ${job.attempt} of job ${job.id}: ${text.length} characters`);
    return new TextEncoder().encode(JSON.stringify({ text }));
  },
};

function parse(payload) {
  let input;
  try {
    input = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
  } catch (error) {
    dead(`the payload is no JSON: ${error.message}`);
  }
  if (typeof input?.template !== 'string' || Object(input.values) !== input.values) {
    dead('the payload must have a text "template" and an object "values"');
  }
  return input;
}

// No further attempt can succeed. Anything else that is thrown is a trap: the job is tried again.
function dead(message) {
  throw { tag: 'dead', val: message };
}
