-- purpose: the rota: which lanes can be served, and which wait for what (section 6).
-- defines: made_ready, freed, laned, RING, CLOSED, LANES, read_lane, spell_lane, write_lane, begin_rota, touch, unready, enter_lane, leave_lane, startable, settle_rota, watch
-- A queue that never met a lane has no rota: `pending` is all there is. From the first lane on, a lane with pending jobs,
-- the one without a name among them, is in exactly one of `ring` and `closed`, and its field in `lanes` says where:
-- `r`, `c` or `-`, then the credit of its turn, then its settings. Verbs only say which lanes they touched; what that
-- means for the rota is settled once, at the end of the call.
local made_ready, freed, laned = 0, 0, 0
local RING, CLOSED, LANES, read_lane, spell_lane, write_lane, begin_rota, touch, unready, enter_lane, leave_lane, startable, settle_rota
local heads
-- Called before an entry due at `moment` joins a set by whose head workers set their timers: they must hear of a nearer one.
local function watch(key, moment)
  heads = heads or {}
  local head = heads[key]
  if not head then
    local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
    heads[key] = { before = tonumber(first[2]) or math.huge, soonest = moment }
  elseif moment < head.soonest then
    head.soonest = moment
  end
end
if ROTA or MAY_BEGIN then
  RING, CLOSED, LANES = P .. 'ring', P .. 'closed', P .. 'lanes'
  local touched, order = {}, {}
  local PIECE_OF_LANES = 1000 -- `unpack` fails at some 8,000 values
  local joining, kept -- lanes for the ring, and what `lanes` then says of them
  function read_lane(text)
    if not text then return { where = '-', credit = 0 } end
    local where, credit, settings = string.match(text, '^([rc-])(%d+) ?(.*)$')
    return { where = where, credit = tonumber(credit), limits = settings ~= '' and read_limits(settings) or nil }
  end
  -- Answers nil for a lane that needs no field.
  function spell_lane(lane)
    local settings = lane.limits and spell_limits(lane.limits, lane.where == '-' and not lane.waits) or ''
    if settings ~= '' then return lane.where .. lane.credit .. ' ' .. settings end
    if lane.where ~= '-' then return lane.where .. lane.credit end --!guard field-owner
    return nil
  end
  function write_lane(name, lane)
    local text = spell_lane(lane)
    if text then
      call('HSET', LANES, name, text) --!write lane
    else
      call('HDEL', LANES, name) --!write lane-field
    end
  end
  -- Something about the lane has changed: a job came or left, a slot is free, a setting is another.
  function touch(lane, came)
    local count = touched[lane]
    if not count then
      order[#order + 1] = lane
      count = 0
    end
    touched[lane] = count + (came or 0)
  end
  -- A job left the lane's ready ones, perhaps one that came in this very call.
  function unready(lane)
    touch(lane)
    touched[lane] = math.max(0, touched[lane] - 1) --!write unready
  end
  function begin_rota()
    if ROTA then return end --!guard begun
    call('HSET', META, 'rota', 1) --!write rota
    ROTA = '1'
    touch('') --!write rota-default
  end
  -- A job enters its lane's ready ones.
  function enter_lane(id, lane, score)
    local come = call('ZADD', P .. lane_set(lane), score, id) --!write enter-lane
    if lane ~= '' then laned = laned + come end --!write place-laned
    touch(lane, 1)
  end
  -- A job leaves what is its lane's; answers whether that was its place.
  function leave_lane(id, state, lane)
    if state == 'active' and lane then
      call('ZREM', lane_active(lane), id) --!write leave-lane
      touch(lane) --!write slot-freed
    elseif state == 'pending' then
      local gone = call('ZREM', P .. lane_set(lane or ''), id) --!write leave-pending
      if lane then laned = laned - gone end --!write unlaned
      unready(lane or '') --!write job-left
      return true
    end
    return false
  end
  -- How many of the lane's jobs could start now, of so many that are ready.
  function startable(name, lane, count)
    local limits = lane.limits
    if not limits then return count end
    if limits.limit > 0 then count = math.max(0, math.min(count, limits.limit - call('ZCARD', lane_active(name)))) end --!bound startable
    return math.min(count, allowance(limits)) --!bound startable-rate
  end
  local function settle_lane(name, text, count)
    local lane = read_lane(text)
    if lane.where ~= 'r' then --!guard on-ring
      local was = lane.where
      local pending = P .. lane_set(name)
      if count == 0 and call('EXISTS', pending) == 0 then
        if was == '-' then return end
        call('ZREM', CLOSED, name) --!write empty-closed
        lane.where = '-'
        write_lane(name, lane)
        return
      end
      local moment = lane.limits and shut(lane.limits, lane_active(name), nil, was == 'c')
      -- A full lane whose soonest lease is over has its turn all the same: that is where it is reaped.
      if moment and moment > NOW then --!guard shut-lane
        if moment < math.huge then watch(CLOSED, moment) end
        call('ZADD', CLOSED, moment < math.huge and moment or '+inf', name) --!write close
        lane.where = 'c'
        if was ~= 'c' then write_lane(name, lane) end
        return
      end
      lane.where = 'r'
      joining[#joining + 1] = name
      kept[#kept + 1] = name
      kept[#kept + 1] = spell_lane(lane)
      if was == 'c' then call('ZREM', CLOSED, name) end --!write reopen
      if count == 0 then count = call('ZCARD', pending) end
    end
    made_ready = made_ready + startable(name, lane, count)
  end
  function settle_rota()
    local names, counts = order, touched
    order, touched = {}, {}
    for from = 1, #names, PIECE_OF_LANES do
      local texts = call('HMGET', LANES, unpack(names, from, math.min(#names, from + PIECE_OF_LANES - 1)))
      joining, kept = {}, {}
      for i = 1, #texts do
        local name = names[from + i - 1]
        settle_lane(name, texts[i], counts[name])
      end
      if #joining > 0 then
        call('RPUSH', RING, unpack(joining)) --!write join
        call('HSET', LANES, unpack(kept)) --!write joined
      end
    end
    -- Last: should the server refuse it, every lane is where it should be.
    if laned ~= 0 then call('HINCRBY', META, 'laned', laned) end --!write laned
    laned = 0
  end
end
