-- purpose: events. The queue chooses none, failures (the default) or all, and about how many are kept.
-- defines: emit
local LEVEL = meta[4] or 'failures'
local FAILURES = {
  failed = true, dead = true, stalled = true, expired = true, dropped = true, torn = true, trimmed = true, mended = true, lost = true,
  paused = true, resumed = true,
}
local most_events -- asked for only by a call that has an event to write, by a command that every script has the right to
local function emit(event, id, ...)
  if LEVEL == 'none' or (LEVEL == 'failures' and not FAILURES[event]) then return end
  most_events = most_events or call('HMGET', META, 'events_max')[1] or 10000 --!bound events-max
  call('XADD', P .. 'events', 'MAXLEN', '~', most_events, '*', 'event', event, 'job', id, ...) --!write event
end
