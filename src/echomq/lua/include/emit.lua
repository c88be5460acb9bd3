-- purpose: events. The queue chooses none, failures (the default) or all; the stream is bounded.
-- defines: emit
local LEVEL = meta[4] or 'failures'
local FAILURES = { failed = true, dead = true, stalled = true, expired = true, dropped = true, torn = true, trimmed = true, mended = true, lost = true }
local function emit(event, id, ...)
  if LEVEL == 'none' or (LEVEL == 'failures' and not FAILURES[event]) then return end
  call('XADD', P .. 'events', 'MAXLEN', '~', 10000, '*', 'event', event, 'job', id, ...) --!write event
end
