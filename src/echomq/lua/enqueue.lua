-- verb: enqueue
-- purpose: Admit jobs: check, reserve the dedup key, write the row, place it in pending, its lane or schedule.
-- section: Protocol, section 5
-- flags:
-- include: now, number, moment, once, row, torn, jobs, limits, rota, place, emit, bell, lane
-- keys: meta hash; pending zset; schedule zset; job:<id> hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; priority integer; due moment; ends moments; dedup text; rule text; lane text; fields count; then name and value of each field
-- reply: a verdict an item
-- verdicts: admitted; duplicate; replaced; collision
-- refusals: EMQKIND; EMQSTATE; EMQFULL; EMQVERSION; EMQSTALE
-- events: enqueued; replaced
-- cost: O(log n) an item
-- bound: 256 items
-- moves: nothing -> pending; nothing -> schedule; pending -> schedule
local kept, refused = recall()
if kept or refused then return kept or refused end

local MOST_PRIORITY = 2047
local rows -- by item: its row's key, if there are several
-- Items that are admitted and not written yet: number, set, score. They are placed together, one command a set, and then
-- get their rows: a place without a row is dropped by whoever comes upon it, a row without a place would be lost. (A
-- list is dear to make: a call of one item, which is frequent, makes few.)
local verdicts, waiting = {}, nil
-- Should the server refuse an item a place or a row, its dedup key must not stay.
local function unmake(problem, at)
  if ARGV[at + 4] ~= '' then pcall(call, 'DEL', P .. 'dedup:' .. ARGV[at + 4]) end --!write unmake
  return torn(problem)
end
local refusals -- of the server, by set; nil when there are none
local function enter(set, ...)
  local answer = redis.pcall('ZADD', P .. set, ...) --!write enter
  if type(answer) == 'table' then --!guard enter-refused
    refusals = refusals or {}
    refusals[set] = answer
  elseif set ~= 'pending' and set ~= 'schedule' then
    laned = laned + answer --!write enter-laned
  end
end
local function enter_all()
  local sets = {}
  -- The last first: the server looks for a place in a small set from its head on, past all that come before.
  for i = #waiting, 1, -3 do
    local set = waiting[i - 1]
    local score, id = waiting[i], ARGV[items[waiting[i - 2]]]
    local words = sets[set]
    if words then
      words[#words + 1] = score
      words[#words + 1] = id
    else
      sets[set] = { score, id }
    end
  end
  for set, words in pairs(sets) do
    enter(set, unpack(words))
  end
end
local function ready(lane)
  if ROTA then
    touch(lane, 1)
  else
    made_ready = made_ready + 1
  end
end
local function write_row(n, set)
  local at = items[n]
  local lane = ARGV[at + 6]
  local key, last = rows and rows[n] or row_key(ARGV[at]), at + FIXED - 1 + 2 * ARGV[at + 7]
  local state = set == 'schedule' and set or 'pending'
  if lane ~= '' then
    call('HSET', key, 'state', state, 'since', NOW, 'by', CLIENT, 'lane', lane, unpack(ARGV, at + FIXED, last)) --!write laned-row
  else
    call('HSET', key, 'state', state, 'since', NOW, 'by', CLIENT, unpack(ARGV, at + FIXED, last)) --!write row
  end
  if ARGV[at + 3] ~= '' then call('HSET', key, unpack(ends(ARGV[at + 3]))) end --!write ends
  if set ~= 'schedule' then ready(lane) end
end
local function write_waiting()
  if not waiting then return end
  refusals = nil
  if #waiting == 3 then
    enter(waiting[2], waiting[3], ARGV[items[waiting[1]]])
  else
    enter_all()
  end
  for i = 1, #waiting, 3 do
    local n, set = waiting[i], waiting[i + 1]
    local fine, problem = false, refusals and refusals[set]
    if not problem then fine, problem = pcall(write_row, n, set) end
    verdicts[n] = fine and 'admitted' or unmake(problem, items[n])
    -- It is admitted, whatever becomes of its event.
    if fine and not pcall(emit, 'enqueued', ARGV[items[n]]) then tally('torn') end
  end
  waiting = nil
end

-- How many more jobs the queue takes.
local room = math.huge
if meta[8] then
  room = meta[8] - call('ZCARD', P .. 'pending') - call('ZCARD', P .. 'schedule') - (call('HGET', META, 'laned') or 0)
end
-- A waiting job gets this item's content: a new budget under the id and token that it has. It stays where it is in time, or
-- starts the item's delay.
local replace
if LAST_WINS then
  function replace(at, id, state, due)
    local key, lane = row_key(id), ARGV[at + 6]
    local row = { state = state, lane = call('HGET', key, 'lane') }
    -- Whoever names no lane leaves it where it waits: it must not slip out of its lane's limits.
    if lane == '' then lane = row.lane or '' end --!guard replace-same-lane
    if lane ~= '' then begin_rota() end --!guard replace-first-lane
    local old = state == 'schedule' and state or lane_set(row.lane or '')
    local set, score = lane_set(lane), -ARGV[at + 1]
    if due > NOW then
      set, score = 'schedule', due
      watch(P .. 'schedule', due)
    elseif state == 'schedule' then
      set, score = 'schedule', call('ZSCORE', P .. 'schedule', id)
    end
    local come = call('ZADD', P .. set, score, id) --!write replace-enter
    local last = at + FIXED - 1 + 2 * ARGV[at + 7]
    local stays = { state = true, since = true, by = true, attempts = true, log_bytes = true, log_lines = true, lane = lane ~= '' }
    -- Whose child and parent it is stays.
    for _, name in ipairs({ 'parent', 'children', 'depth', 'broken', 'early', 'seen' }) do
      stays[name] = true
    end
    for i = at + FIXED, last, 2 do
      stays[ARGV[i]] = true
    end
    call('HSET', key, 'state', set == 'schedule' and set or 'pending', unpack(ARGV, at + FIXED, last)) --!write replace-row
    if lane ~= '' then call('HSET', key, 'lane', lane) end --!write replace-lane
    if ARGV[at + 3] ~= '' then
      local fields = ends(ARGV[at + 3])
      call('HSET', key, unpack(fields)) --!write replace-ends
      stays[fields[1]], stays[fields[3] or fields[1]] = true, true
    end
    for _, name in ipairs(call('HKEYS', key)) do
      if not stays[name] then call('HDEL', key, name) end --!write replace-forget
    end
    if set ~= old then
      call('HSET', key, 'since', NOW) --!write replace-since
      if set ~= 'schedule' then
        if lane ~= '' then laned = laned + come end --!write replace-laned
        ready(lane)
      end
      leave(id, row) --!write replace-leave
    end
    emit('replaced', id)
  end
end

-- Whether none of the call's jobs is there, and none comes twice: then no item need ask. Almost every call is so.
local fresh = false
-- Answers the verdict, or nil for an item that waits to be written.
local begun
local function admit(n)
  local at = items[n]
  local id, dedup, rule, lane = ARGV[at], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
  begun = nil
  if meta[3] then return 'EMQSTATE closing' end --!guard closing
  local priority = whole(ARGV[at + 1], -MOST_PRIORITY, MOST_PRIORITY)
  if not priority then return 'EMQKIND priority ' .. ARGV[at + 1] end --!guard priority
  local due = ARGV[at + 2] == '0' and 0 or moment_of(ARGV[at + 2])
  if not due then return 'EMQKIND due ' .. ARGV[at + 2] end --!guard due
  if ARGV[at + 3] ~= '' and not (ends(ARGV[at + 3]) or {})[1] then return 'EMQKIND ends ' .. ARGV[at + 3] end --!guard ends
  local last_wins = rule == 'replace' or rule == 'debounce'
  local window = last_wins and 0 or whole(rule, 0, LONGEST)
  if not window then return 'EMQKIND rule ' .. rule end --!guard rule
  if lane ~= '' and not lane_fits(lane) then return 'EMQKIND lane ' .. lane end --!guard lane
  -- What follows reads rows: those of the items before this one, too.
  if dedup ~= '' or not fresh then write_waiting() end --!guard write-first
  local by = not fresh and call('HGET', row_key(id), 'by')
  if by then --!guard exists
    -- Written by this client: the resend of a call whose memory is gone. By another: two clients minted the same id.
    return by == CLIENT and 'admitted' or 'collision'
  end
  local key = P .. 'dedup:' .. dedup
  if dedup ~= '' then
    local holder = call('GET', key)
    if holder and holder ~= id then
      local state = call('HGET', row_key(holder), 'state')
      local waits = state == 'pending' or state == 'schedule'
      if last_wins and waits then --!guard replace
        replace(at, holder, state, rule == 'debounce' and due or 0)
        return 'replaced ' .. holder
      end
      -- A window outlives the job. Else a job that runs is succeeded by one that replaces, and not by one that does not.
      if call('PTTL', key) > 0 or waits or state == 'active' and not last_wins then return 'duplicate ' .. holder end --!guard dedup
    end
  end
  if room <= 0 then return 'EMQFULL ' .. meta[8] end --!bound max-size
  if dedup ~= '' then
    if window > 0 then
      call('SET', key, id, 'PX', window) --!write dedup-window
    else
      call('SET', key, id) --!write dedup
    end
  end
  begun = at
  room = room - 1 --!write room
  if lane ~= '' then begin_rota() end --!guard first-lane
  if not meta[1] then
    call('HSET', META, 'protocol', VERSION) --!write meta
    meta[1] = VERSION
  end
  local set, score = lane_set(lane), -priority
  if due > NOW then
    set, score = 'schedule', due
    watch(P .. 'schedule', due)
  end
  if waiting then
    local last = #waiting
    waiting[last + 1], waiting[last + 2], waiting[last + 3] = n, set, score
  else
    waiting = { n, set, score }
  end
  return nil
end

if #items > 1 then
  local seen = {}
  fresh, rows = true, {}
  for n, first in ipairs(items) do
    local key = row_key(ARGV[first])
    if seen[key] then fresh = false end --!guard twice
    seen[key] = true
    rows[n] = key
  end
  if call('EXISTS', unpack(rows)) > 0 then fresh = false end --!guard there
end
for n, first in ipairs(items) do
  local fine, verdict = pcall(admit, n)
  if not fine then
    local undo = torn
    if begun == first then undo = unmake end --!guard unmake
    verdict = undo(verdict, first)
  end
  verdicts[n] = verdict
end
write_waiting()
bell()
flush_tally()
remember(verdicts)
return verdicts
