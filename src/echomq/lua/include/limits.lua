-- purpose: limits of a lane, or of the queue: how many may run, how many may start in a time, until when it is closed.
-- defines: LIMITS, DAY, pace, read_limits, spell_limits, allowance, spend, shut
-- Kept as one text, `weight limit count per_ms burst tat paused till`, 0 where there is none. A rate is one number, the
-- theoretical arrival time of the next start (GCRA): each start moves it by `every`, and it may run ahead of the clock by
-- `slack`. That makes the rate exact over any span, and says to the ms when it opens again. The slack is what the burst
-- asks for, but at least SLACK: a worker that comes a little late must not lose what it was allowed meanwhile.
local LIMITS, pace, read_limits, spell_limits, allowance, spend, shut
local SLACK, GATHER, DAY = 50, 25, 86400000
if LIMITED or ROTA or MAY_BEGIN then
  function pace(it)
    if it.count == 0 then return end
    it.every = it.per / it.count
    it.slack = math.max((it.burst - 1) * it.every, SLACK)
    -- The clock stepped back: nothing is further ahead than its rule allows.
    it.tat = math.min(it.tat, NOW + it.slack + it.every) --!write tat-ahead
  end
  function read_limits(text)
    local weight, limit, count, per, burst, tat, paused, till = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    local it = {
      weight = tonumber(weight), limit = tonumber(limit), count = tonumber(count), per = tonumber(per),
      burst = tonumber(burst), tat = tonumber(tat), paused = tonumber(paused), till = tonumber(till),
    }
    pace(it)
    it.till = math.min(it.till, NOW + DAY) --!write till-ahead
    return it
  end
  -- Answers '' when nothing is set. A handler's closing is no setting: it does not outlive the lane's last job (`idle`).
  function spell_limits(it, idle)
    local tat, till = it.tat, it.till
    if tat <= NOW then tat = 0 end
    if till <= NOW then till = 0 end
    if it.weight + it.limit + it.count + it.paused == 0 and (idle or till == 0) then return '' end --!guard settings
    return string.format('%d %d %d %d %d %.3f %.0f %.0f', it.weight, it.limit, it.count, it.per, it.burst, tat, it.paused, till)
  end
  -- How many may start now by the rate alone.
  function allowance(it)
    if it.count == 0 then return math.huge end
    return math.floor((NOW + it.slack - math.max(it.tat, NOW)) / it.every) + 1 --!bound rate
  end
  function spend(it, starts)
    if it.count > 0 then it.tat = math.max(it.tat, NOW) + starts * it.every end --!write spend
  end
  -- When to look again, or nil if it can be served. `reasons` is filled with the words for why not, if it is given. One that
  -- is closed for its rate opens a little later than its first start may be: that a few have gathered spares the workers a
  -- claim for each.
  function shut(it, active, reasons, closed)
    local moment
    local function because(word, of_that)
      moment = math.max(moment or 0, of_that)
      if reasons then reasons[#reasons + 1] = word end
    end
    if it.paused > 0 then because('paused', math.huge) end --!guard lane-paused
    if it.till > NOW then because('told to wait', it.till) end --!guard till
    if it.count > 0 then
      local opens = it.tat - it.slack
      local gathered = opens + math.min(it.slack / 2, GATHER)
      if (closed and gathered or opens) > NOW then because('rate', math.ceil(gathered)) end --!guard rate-shut
    end
    if it.limit > 0 and call('ZCARD', active) >= it.limit then --!bound limit
      because('limit', tonumber(call('ZRANGE', active, 0, 0, 'WITHSCORES')[2]))
    end
    return moment
  end
end
if LIMITED then LIMITS = read_limits(LIMITED) end
